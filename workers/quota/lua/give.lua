-- Repeated: the hold is gone, nothing is counted twice.
-- KEYS state, held, tokens; ARGV id
if redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], 'sum', -(tonumber(redis.call('HGET', KEYS[3], ARGV[1])) or 0))
  redis.call('HDEL', KEYS[3], ARGV[1])
end
return 1

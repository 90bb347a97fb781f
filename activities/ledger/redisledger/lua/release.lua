-- Repeated: nothing is left to drop; the tombstone starts anew.
-- KEYS seat, ends, blocks, gone; ARGV attempt, tombstone ms, tombstones max, ttl ms
local t = now_ms()
sweep(t)
drop(ARGV[1])
redis.call('ZADD', gone, t + tonumber(ARGV[2]), ARGV[1])
local over = redis.call('ZCARD', gone) - tonumber(ARGV[3])
if over > 0 then
  redis.call('ZREMRANGEBYRANK', gone, 0, over - 1)
end
keep(ARGV[4])
return {'none', ''}

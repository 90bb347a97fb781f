-- Repeated: the same writer stands; nothing is taken away.
-- KEYS about, records; ARGV run, number, ttl ms, body, model, kind, created
local a = redis.call('HMGET', KEYS[1], 'run', 'number', 'len')
local number = tonumber(ARGV[2])
if a[1] == ARGV[1] then
  if number < tonumber(a[2]) then
    return {'stale', 0}
  end
  redis.call('HSET', KEYS[1], 'number', ARGV[2])
elseif number > 1 then
  return {'gone', 0}
else
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('HSET', KEYS[1], 'run', ARGV[1], 'number', ARGV[2], 'len', 0, 'bytes', 0, 'body', ARGV[4], 'model', ARGV[5],
    'kind', ARGV[6], 'created', ARGV[7])
  a[3] = 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
-- The stream may have lost its end, or the count its beginning: the shorter counts.
return {'ok', math.min(tonumber(a[3]), redis.call('XLEN', KEYS[2]))}

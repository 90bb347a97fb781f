-- Repeated under the same id: the hold is there, nothing is counted twice.
-- KEYS state, held, tokens; ARGV id, tokens, limit, interval us, burst, lease ms, most held, most expired
local state, held, tokens = KEYS[1], KEYS[2], KEYS[3]
local t = redis.call('TIME')
local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
local ms = math.floor(us / 1000)
local lease = tonumber(ARGV[6])
for _, id in ipairs(redis.call('ZRANGEBYSCORE', held, '-inf', ms, 'LIMIT', 0, tonumber(ARGV[8]))) do
  redis.call('HINCRBY', state, 'sum', -(tonumber(redis.call('HGET', tokens, id)) or 0))
  redis.call('HDEL', tokens, id)
  redis.call('ZREM', held, id)
end
if redis.call('ZSCORE', held, ARGV[1]) then
  return {'ok', 0}
end
local interval, burst = tonumber(ARGV[4]), tonumber(ARGV[5])
local tat = us
if interval > 0 then
  tat = math.max(us, tonumber(redis.call('HGET', state, 'tat')) or 0)
  local wait = tat - us - (burst - 1) * interval
  if wait > 0 then
    return {'rate', math.ceil(wait / 1000)}
  end
end
local sum = tonumber(redis.call('HGET', state, 'sum')) or 0
local limit = tonumber(ARGV[3])
if limit > 0 and sum + tonumber(ARGV[2]) > limit then
  return {'tokens', sum}
end
if redis.call('ZCARD', held) >= tonumber(ARGV[7]) then
  return {'held', 0}
end
if interval > 0 then
  redis.call('HSET', state, 'tat', string.format('%d', tat + interval))
end
redis.call('HINCRBY', state, 'sum', ARGV[2])
redis.call('HSET', tokens, ARGV[1], ARGV[2])
redis.call('ZADD', held, ms + lease, ARGV[1])
local keep = 2 * lease + math.ceil(math.max(0, tat - us) / 1000) + math.ceil(interval / 1000)
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, keep)
end
return {'ok', 0}

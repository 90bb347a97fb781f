-- Repeated: the heartbeat of the same process.
-- KEYS registry; ARGV id, process incarnation, ttl ms, engines max, key ttl ms, record
local key, t = KEYS[1], now_ms()
local old = redis.call('HGET', key, ARGV[1])
if old then
  local r = parse(old)
  if r.finish > t and later(r.process, ARGV[2]) then
    return {'stale_incarnation', 'the engine runs as ' .. r.process}
  end
elseif redis.call('HLEN', key) >= tonumber(ARGV[4]) and #registered(key, t) >= tonumber(ARGV[4]) then
  return {'capacity', 'the registry has ' .. ARGV[4] .. ' engines'}
end
local finish = string.format('%.0f', t + tonumber(ARGV[3]))
local since = string.format('%.0f', t)
redis.call('HSET', key, ARGV[1], finish .. ' ' .. since .. ' ' .. ARGV[2] .. ' ' .. ARGV[6])
redis.call('PEXPIRE', key, ARGV[5])
return {'none', ''}

-- Repeated: the same list is written again. What the daemon does not know
-- keeps its lease; used is counted afresh.
-- KEYS seat, ends, blocks, gone; ARGV incarnation, total, lease ms, ttl ms, (attempt, blocks)…
local t = now_ms()
sweep(t)
local here, err = life()
if not here then
  return {'unavailable', err}
end
local known = redis.call('HGET', seat, 'incarnation')
if known and later(known, ARGV[1]) then
  return {'stale_incarnation', 'the engine is at incarnation ' .. known}
end
for i = 5, #ARGV, 2 do
  promise(ARGV[i], tonumber(ARGV[i + 1]), t + tonumber(ARGV[3]))
end
local used = 0
for _, n in ipairs(redis.call('HVALS', blocks)) do
  used = used + tonumber(n)
end
redis.call('HSET', seat, 'life', here, 'incarnation', ARGV[1], 'total', ARGV[2], 'used', used)
keep(ARGV[4])
return {'none', ''}

-- Reads one engine's account: used, promises, and the incarnation that was
-- rebuilt in this life of the store, 0 when none was.
-- KEYS seat, ends, blocks, gone
sweep(now_ms())
local s = redis.call('HMGET', seat, 'life', 'incarnation', 'used')
local here, err = life()
if not here then
  return {'unavailable', err}
end
local built = '0'
if s[1] == here then
  built = s[2]
end
return {'none', '', s[3] or '0', tostring(redis.call('ZCARD', ends)), built}

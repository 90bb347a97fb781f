-- Repeated: the first value stands.
-- KEYS born; ARGV a fresh random value, ttl ms
redis.call('SET', KEYS[1], ARGV[1], 'NX')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local here, err = life()
if not here then
  return {'unavailable', err}
end
return {'none', '', redis.call('GET', KEYS[1]) .. '.' .. here}

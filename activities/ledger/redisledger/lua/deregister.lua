-- Repeated: nothing is left. A later process's registration is let be.
-- KEYS registry; ARGV id, process incarnation
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old and not later(parse(old).process, ARGV[2]) then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return {'none', ''}

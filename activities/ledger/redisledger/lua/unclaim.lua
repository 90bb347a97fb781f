-- Repeated: the tombstone is written again. Another handoff's claim is let be.
-- KEYS claim; ARGV handoff, tombstone ms
local c = redis.call('HMGET', KEYS[1], 'handoff', 'state', 'outcome')
if c[1] and c[1] ~= ARGV[1] then
  return {'none', ''}
end
if c[2] == 'settled' then
  return {'conflict', 'settled as ' .. c[3]}
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'handoff', ARGV[1], 'state', 'freed')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'none', ''}

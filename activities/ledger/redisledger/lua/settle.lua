-- Repeated: the same outcome stands; nothing is written.
-- KEYS claim; ARGV body, handoff, outcome, window ms
local key, body, handoff, outcome, window = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local c = redis.call('HMGET', key, 'body', 'handoff', 'owner', 'state', 'outcome')
local owner = c[3]
if not c[4] or c[4] == 'freed' then
  owner = ''
elseif c[2] ~= handoff then
  return {'conflict', 'the key is held by ' .. c[2]}
elseif c[1] ~= body then
  return {'key_reused', 'held by ' .. c[2] .. ' with another body'}
elseif c[4] == 'settled' and (c[5] == outcome or outcome == 'committed') then
  return {'none', ''}
elseif c[4] == 'settled' and c[5] ~= 'committed' then
  return {'conflict', 'settled as ' .. c[5]}
end
redis.call('HSET', key, 'body', body, 'handoff', handoff, 'owner', owner, 'state', 'settled', 'outcome', outcome)
redis.call('PEXPIRE', key, window)
return {'none', ''}

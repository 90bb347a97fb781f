-- A claim is a hash {body, handoff, owner, state, outcome}; the state is
-- claimed, settled, or freed: the tombstone of an unclaim.
local function claim(key, body, handoff, owner, window)
  local c = redis.call('HMGET', key, 'body', 'handoff', 'owner', 'state', 'outcome')
  if c[4] == 'freed' and c[2] == handoff then
    return {'closed', 'the claim of ' .. handoff .. ' was freed'}
  end
  if not c[4] or c[4] == 'freed' then
    redis.call('DEL', key)
    redis.call('HSET', key, 'body', body, 'handoff', handoff, 'owner', owner, 'state', 'claimed', 'outcome', '')
    redis.call('PEXPIRE', key, window)
    return {'none', '', '1', handoff, owner, 'claimed', ''}
  end
  if c[1] ~= body then
    return {'key_reused', 'held by ' .. c[2] .. ' with another body'}
  end
  local mine = '0'
  if c[2] == handoff and c[3] == owner then
    mine = '1'
  end
  return {'none', '', mine, c[2], c[3], c[4], c[5]}
end

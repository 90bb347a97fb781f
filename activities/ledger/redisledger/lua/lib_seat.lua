-- An engine's account: seat is a hash {life, incarnation, total, used}, ends a
-- sorted set attempt → end ms, blocks a hash attempt → blocks, gone a sorted
-- set of tombstones attempt → end ms. used is always the sum of blocks: every
-- change of blocks goes through drop and promise.
local seat, ends, blocks, gone = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function drop(attempt)
  local n = redis.call('HGET', blocks, attempt)
  if n then
    redis.call('HINCRBY', seat, 'used', -tonumber(n))
    redis.call('HDEL', blocks, attempt)
    redis.call('ZREM', ends, attempt)
  end
end

local function promise(attempt, n, finish)
  redis.call('HSET', blocks, attempt, n)
  redis.call('ZADD', ends, finish, attempt)
  redis.call('HINCRBY', seat, 'used', n)
end

local function sweep(t)
  for _, attempt in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', t)) do
    drop(attempt)
  end
  redis.call('ZREMRANGEBYSCORE', gone, '-inf', t)
end

-- All four keys get the same time to live, so that no part outlives another.
local function keep(ttl)
  redis.call('PEXPIRE', seat, ttl)
  redis.call('PEXPIRE', ends, ttl)
  redis.call('PEXPIRE', blocks, ttl)
  redis.call('PEXPIRE', gone, ttl)
end

local function prolong(attempt, finish)
  if finish > tonumber(redis.call('ZSCORE', ends, attempt)) then
    redis.call('ZADD', ends, finish, attempt)
  end
end

local function reserve(attempt, incarnation, n, lease, promises_max, ttl)
  local t = now_ms()
  sweep(t)
  local s = redis.call('HMGET', seat, 'life', 'incarnation', 'total', 'used')
  local here, err = life()
  if not here then
    return {'unavailable', err}
  end
  if s[1] ~= here then
    return {'unavailable', 'the engine needs a rebuild'}
  end
  if later(s[2], incarnation) then
    return {'stale_incarnation', 'the engine is at incarnation ' .. s[2]}
  end
  if s[2] ~= incarnation then
    return {'unavailable', 'the engine needs a rebuild'}
  end
  if redis.call('ZSCORE', gone, attempt) then
    return {'closed', attempt .. ' was released'}
  end
  keep(ttl)
  if redis.call('ZSCORE', ends, attempt) then
    prolong(attempt, t + lease)
    return {'none', ''}
  end
  if redis.call('ZCARD', ends) >= promises_max then
    return {'capacity', 'the engine has ' .. promises_max .. ' promises'}
  end
  local free = math.max(0, tonumber(s[3]) - tonumber(s[4]))
  if n > free then
    return {'capacity', n .. ' blocks wanted, ' .. free .. ' of ' .. s[3] .. ' free'}
  end
  promise(attempt, n, t + lease)
  keep(ttl)
  return {'none', ''}
end

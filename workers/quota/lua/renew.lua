-- Holds that the store lost come back: their requests are in flight all the same.
-- KEYS state, held, tokens; ARGV lease ms, then id and tokens of each
local t = redis.call('TIME')
local ms = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
for i = 2, #ARGV, 2 do
  if redis.call('HSETNX', KEYS[3], ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('HINCRBY', KEYS[1], 'sum', ARGV[i + 1])
  end
  redis.call('ZADD', KEYS[2], ms + tonumber(ARGV[1]), ARGV[i])
end
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < 2 * tonumber(ARGV[1]) then
    redis.call('PEXPIRE', key, 2 * tonumber(ARGV[1]))
  end
end
return 1

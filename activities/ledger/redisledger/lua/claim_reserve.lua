-- Repeated: the claim is mine and the attempt is promised; only its lease grows.
-- KEYS seat, ends, blocks, gone, claim; ARGV as claim.lua, then as reserve.lua
local c = claim(KEYS[5], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if c[1] ~= 'none' or c[3] ~= '1' or c[6] ~= 'claimed' then
  return c
end
local r = reserve(ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10])
return {r[1], r[2], c[3], c[4], c[5], c[6], c[7]}

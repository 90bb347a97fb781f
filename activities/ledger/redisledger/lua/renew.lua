-- Repeated: leases grow to a little later. Answers the places of what is lost.
-- KEYS seat, ends, blocks, gone; ARGV lease ms, ttl ms, attempts…
local t = now_ms()
sweep(t)
local out = {'none', ''}
for i = 3, #ARGV do
  if redis.call('ZSCORE', ends, ARGV[i]) then
    prolong(ARGV[i], t + tonumber(ARGV[1]))
  else
    out[#out + 1] = tostring(i - 3)
  end
end
keep(ARGV[2])
return out

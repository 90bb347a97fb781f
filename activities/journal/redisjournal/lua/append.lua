-- Repeated: records that are there already are left.
-- KEYS about, records; ARGV run, number, index, ttl ms, most records, most bytes, then each record
local a = redis.call('HMGET', KEYS[1], 'run', 'number', 'len', 'bytes')
if a[1] and (a[1] ~= ARGV[1] or tonumber(ARGV[2]) < tonumber(a[2])) then
  return {'stale', 0}
end
local index = tonumber(ARGV[3])
if not a[1] or redis.call('XLEN', KEYS[2]) ~= tonumber(a[3]) or index > tonumber(a[3]) then
  return {'gone', 0}
end
local len, bytes = tonumber(a[3]), tonumber(a[4])
for i = 7, #ARGV do
  local at = index + i - 7
  if at >= len then
    bytes = bytes + #ARGV[i]
    if at >= tonumber(ARGV[5]) or bytes > tonumber(ARGV[6]) then
      return {'full', 0}
    end
    redis.call('XADD', KEYS[2], (at + 1) .. '-0', 'r', ARGV[i])
    len = at + 1
    redis.call('HSET', KEYS[1], 'len', len, 'bytes', bytes)
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {'ok', len}

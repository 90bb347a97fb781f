-- The registry is one hash: id → "end ms, since ms, process incarnation, record".
local function parse(v)
  local finish, since, process, record = string.match(v, '^(%d+) (%d+) (%d+) (.*)$')
  return {finish = tonumber(finish), since = tonumber(since), process = process, record = record}
end

-- Live registrations by id; those that ended are removed.
local function registered(key, t)
  local out, all = {}, redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local r = parse(all[i + 1])
    if r.finish > t then
      out[#out + 1] = r
    else
      redis.call('HDEL', key, all[i])
    end
  end
  return out
end

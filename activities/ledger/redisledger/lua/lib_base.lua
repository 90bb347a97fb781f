-- The server's own run id changes when it restarts or another server takes
-- over. A server that has none (an embedded one) forgets everything when it
-- restarts, which missing keys tell. Any other error fails the script: a
-- server that may not tell its life is not trusted with promises.
local function life()
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'table' and info.err then
    if string.find(info.err, 'not supported', 1, true) then
      return 'embedded'
    end
    return nil, info.err
  end
  return string.match(info, 'run_id:(%w+)') or 'unnamed'
end

local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- Incarnations are decimal uint64 and compared as text: a Lua number would
-- round those past 2^53.
local function later(a, b)
  return #a > #b or (#a == #b and a > b)
end

-- Lists the registry: age ms and record, in turn.
-- KEYS registry
local t, out = now_ms(), {'none', ''}
for _, r in ipairs(registered(KEYS[1], t)) do
  out[#out + 1] = string.format('%.0f', math.max(0, t - r.since))
  out[#out + 1] = r.record
end
return out

-- Adds runs that have not ended to the set of active runs, from which Redis has lost them.
-- KEYS: active states*
-- ARGV: refs
-- USES: core/tries
-- RETURNS: 1 for each of `refs` that is active now, else 0.
-- `refs` is a JSON list of runs, KEY.states has their states. A run that ends leaves the set in the same script
-- (lib/run/close.lua). So a caller that leads no more adds no run that has ended, either.
try_keys({ hash = KEY.states })
local active = {}
for i, ref in ipairs(cjson.decode(ARG.refs)) do
  active[i] = redis.call('HGET', KEY.states[i], 'state') == 'running' and 1 or 0
  if active[i] == 1 then redis.call('SADD', KEY.active, ref) end
end
return active

-- Ends an attempt with its job's terminal record, applies its outcome to the lane, and makes evaluations ready.
-- KEYS: clock leases leased lane limits owed in_flight headroom_tokens headroom_input headroom_output dirty starved
--       active state plan results finished done jobs run_lanes spec rows memory sessions fed budget hot*
-- ARGV: now_ms channel attempt worker signal sent used_input used_output used_cached retry_after_ms hints reason
--       deadline_ms proxy_ms refusal took_ms state payload follow memory joined served
-- MERGES: a worker sends many of a run and lane at once
-- HOLDS: each reads and changes the lane
-- FUNCTION: a worker calls it for each call
-- USES: core/time job/finish_job job/report run/state_fields
-- RETURNS: JSON {in_flight (of the lane), news (of the lane), finished (the run)}; nil for a late report, which
--          changes nothing.
-- `follow` is [[job, "ready", entry, lane] | [job, state, payload, lane], …]. KEY.hot has one queue per "ready", then
-- one for each evaluation in `joined` (lib/run/sessions.lua). `joined` is '' if the item has no session or has not
-- ended. `memory` is {name: value} that later items read. Unknown tokens are -1. `hints` are the provider's reported
-- limits (fairlane.model.hints), or ''. `took_ms` is the duration of the call by the worker's monotonic clock, '' if
-- unknown. `served` is a field of the state that names the model that answered, or ''; providers may invent names.
local MOST_SERVED = 64 -- such fields of a run at most: each read of its status reads them all

local now = clock(ARG.now_ms, KEY.clock)
local lease, outcome = reported(now, {
  string = { KEY.done }, zset = { KEY.leases }, list = { KEY.finished, unpack(KEY.hot) },
  set = { KEY.active, KEY.dirty, KEY.starved, #KEY.hot > 0 and KEY.run_lanes or nil },
  hash = { KEY.jobs, KEY.results, KEY.in_flight, KEY.owed, ARG.joined ~= '' and KEY.sessions or KEY.jobs,
    ARG.memory ~= '{}' and KEY.memory or nil },
})
if not lease then return false end
lease.took_ms = tonumber(ARG.took_ms)
local news = end_reported(lease, outcome, outcome.used, now)
if ARG.memory ~= '{}' then
  for name, value in pairs(cjson.decode(ARG.memory)) do redis.call('HSET', KEY.memory, name, value) end
end
if ARG.served ~= '' and not field_of(KEY.state, ARG.served) then
  local names = tonumber(field_of(KEY.state, 'served') or 0)
  if names < MOST_SERVED then
    set_field(KEY.state, ARG.served, '')
    set_field(KEY.state, 'served', names + 1)
  end
end
local finished = finish_job(lease, ARG.state, ARG.payload, ARG.follow, ARG.joined, KEY.hot, now)
return report_reply(news, finished)

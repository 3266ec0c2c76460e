-- Ends an attempt with its job's terminal record, teaches the lane, and makes the item's judges ready.
-- KEYS: leases leased lane limits owed flying headroom_tokens headroom_input headroom_output dirty starved active state plan results finished done jobs run_lanes spec rows memory sessions budget hot*
-- ARGV: now_ms channel attempt worker signal used_input used_output used_cached retry_after_ms hints reason state payload follow memory joined
-- USES: time wake bucket rate lane tokens refund shape climb openings refusal window places latency hints circuit flying lease share teach leave settle run job session follow
-- RETURNS: {1, lane in flight, news of the lane, run finished} or {0} for a late report, which changes nothing.
-- `follow` is [[job, "ready", entry, lane] | [job, state, payload, lane], …]; KEY.hot has one queue per "ready", then one for each
-- evaluation in `joined` (lib/session.lua), which is '' where the item has no session or is not over.
-- `memory` is what later items read of this one. Tokens that are unknown are -1. `hints` is what the provider said of its limits (fairlane/hints.py), or ''.
local lease = held(ARG.attempt, ARG.worker)
if not lease then
  if redis.call('EXISTS', KEY.state) == 1 then redis.call('HINCRBY', KEY.state, 'late', 1) end
  return { 0 }
end
local now = clock(ARG.now_ms)
local used = {
  input = tonumber(ARG.used_input), output = tonumber(ARG.used_output), cached = tonumber(ARG.used_cached),
}
local news = teach(lease, ARG.signal, used, tonumber(ARG.retry_after_ms), ARG.hints, ARG.reason, now)
release(lease, ARG.attempt)
leave(lease, used)
settle_budget(KEY.budget, lease, ARG.signal, used)
conclude(lease.job, ARG.state, ARG.payload, lease.lane)
local queues = follow_up(lease.ref, cjson.decode(ARG.follow), KEY.hot)
for name, value in pairs(cjson.decode(ARG.memory)) do redis.call('HSET', KEY.memory, name, value) end
local joined = ARG.joined ~= '' and cjson.decode(ARG.joined) or nil
local finished = settle_item(lease.ref, lease.job, now, joined, { unpack(KEY.hot, queues + 1) })
return { 1, tonumber(redis.call('HGET', KEY.lane, 'inflight')), news, finished and 1 or 0 }

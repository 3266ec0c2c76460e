-- Ends an attempt with its job's terminal record, teaches the lane, and makes the item's judges ready.
-- KEYS: leases leased lane limits headroom dirty starved active state plan results finished done jobs run_lanes spec rows hot*
-- ARGV: now_ms channel attempt worker signal used retry_after_ms reason state payload follow
-- USES: time wake bucket lane refund lease teach run job follow
-- RETURNS: {1, lane in flight, news of the lane, run finished} or {0} for a late report, which changes nothing.
-- `follow` is [[job, "ready", tokens, lane] | [job, state, payload, lane], …]; KEY.hot has one queue per "ready".
local lease = held(ARG.attempt, ARG.worker)
if not lease then
  if redis.call('EXISTS', KEY.state) == 1 then redis.call('HINCRBY', KEY.state, 'late', 1) end
  return { 0 }
end
local now = clock(ARG.now_ms)
local news = teach(lease, ARG.signal, tonumber(ARG.used), tonumber(ARG.retry_after_ms), ARG.reason, now)
release(lease, ARG.attempt)
redis.call('HINCRBY', KEY.state, 'in_flight', -1)
conclude(lease.job, ARG.state, ARG.payload, lease.lane)
follow_up(lease.ref, cjson.decode(ARG.follow))
local finished = settle_item(lease.ref, lease.job, now)
return { 1, tonumber(redis.call('HGET', KEY.lane, 'inflight')), news, finished and 1 or 0 }

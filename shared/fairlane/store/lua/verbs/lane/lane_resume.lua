-- Resumes a lane: ends its pause and every wait; a parked lane sends a single probe first.
-- KEYS: clock lanes lane limits dirty audit
-- ARGV: now_ms channel name audit
-- USES: circuit/hold circuit/unpark core/audit core/time core/wake lane/state
-- RETURNS: 1 resumed, 2 resumed with a probe, 0 no such lane.
if redis.call('SISMEMBER', KEY.lanes, ARG.name) == 0 then return 0 end
try_audited({ hash = { KEY.lane, KEY.limits }, set = { KEY.dirty } })
local now = clock(ARG.now_ms, KEY.clock)
local parked = unpark(KEY.lane, now)
end_waits(KEY.lane, read_hash(KEY.limits), parked, now)
audit({probe = parked})
wake(KEY.dirty, ARG.channel, ARG.name)
return parked and 2 or 1

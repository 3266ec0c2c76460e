-- Opens a paused or parked lane; a parked one sends a single probe first.
-- KEYS: lanes lane dirty audit
-- ARGV: now_ms channel name audit
-- USES: time wake unpark audit
-- RETURNS: 1 resumed, 2 resumed with a probe, 0 no such lane.
if redis.call('SISMEMBER', KEY.lanes, ARG.name) == 0 then return 0 end
local parked = unpark(KEY.lane, clock(ARG.now_ms))
redis.call('HDEL', KEY.lane, 'paused')
audit({probe = parked})
wake(KEY.dirty, ARG.channel, ARG.name)
return parked and 2 or 1

-- Pauses a lane: no call starts until it is resumed; calls in flight continue.
-- KEYS: lanes lane audit
-- ARGV: name audit
-- USES: core/audit
-- RETURNS: 1 paused, 0 no such lane.
if redis.call('SISMEMBER', KEY.lanes, ARG.name) == 0 then return 0 end
try_audited({})
redis.call('HSET', KEY.lane, 'paused', 1)
audit()
return 1

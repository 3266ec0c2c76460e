-- Stops a lane: nothing new starts until it is resumed; what is in flight ends as it may.
-- KEYS: lanes lane
-- ARGV: name
-- RETURNS: 1 paused, 0 no such lane.
if redis.call('SISMEMBER', KEY.lanes, ARG.name) == 0 then return 0 end
redis.call('HSET', KEY.lane, 'paused', 1)
return 1

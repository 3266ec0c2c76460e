-- Opens a paused or parked lane; a parked one sends a single probe first.
-- KEYS: lanes lane dirty audit
-- ARGV: now_ms channel name audit
-- USES: time wake audit
-- RETURNS: 1 resumed, 2 resumed with a probe, 0 no such lane.
if redis.call('SISMEMBER', KEY.lanes, ARG.name) == 0 then return 0 end
local parked = redis.call('HDEL', KEY.lane, 'parked')
redis.call('HDEL', KEY.lane, 'paused')
if parked == 1 then
  local now = whole(clock(ARG.now_ms))
  redis.call('HSET', KEY.lane, 'resumed_ms', now)
  -- A probe that is already out is the single one.
  if redis.call('HGET', KEY.lane, 'circuit') ~= 'half_open' then
    redis.call('HSET', KEY.lane, 'circuit', 'open', 'open_ms', now)
  end
end
audit({probe = parked == 1})
wake(KEY.dirty, ARG.channel, ARG.name)
return parked == 1 and 2 or 1

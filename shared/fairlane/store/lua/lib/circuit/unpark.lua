-- Tries a parked lane again, with a single probe.
-- GIVES: unpark
-- USES: core/time

-- Unparks the lane at `key`. Returns whether it was parked. A paused lane stays paused.
function unpark(key, now)
  if redis.call('HDEL', key, 'parked') == 0 then return false end
  redis.call('HDEL', key, 'parked_ms', 'retry_ms')
  redis.call('HSET', key, 'resumed_ms', whole(now))
  -- A probe that is already in flight is that single probe.
  if redis.call('HGET', key, 'circuit') ~= 'half-open' then
    redis.call('HSET', key, 'circuit', 'open', 'open_ms', whole(now))
  end
  return true
end

-- A parked lane is tried again, with a single probe.
-- GIVES: unpark

-- Opens the lane whose state is at `key`; whether it was parked. A paused one stays paused.
function unpark(key, now)
  if redis.call('HDEL', key, 'parked') == 0 then return false end
  redis.call('HSET', key, 'resumed_ms', whole(now))
  -- A probe that is already out is the single one.
  if redis.call('HGET', key, 'circuit') ~= 'half_open' then
    redis.call('HSET', key, 'circuit', 'open', 'open_ms', whole(now))
  end
  return true
end

-- Marks a lane, a run or the workers for the scheduler's next tick; it publishes once until the scheduler has looked.
-- GIVES: wake wakes

function wake(dirty, channel, what)
  CALL.wakes = wakes() + 1
  if redis.call('SADD', dirty, what) == 1 then
    redis.call('PUBLISH', channel, '')
  end
end

-- How often this script has marked anything.
function wakes()
  return CALL.wakes or 0
end

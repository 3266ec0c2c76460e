-- Marks a lane, a run or the workers for the scheduler's next tick. The first mark since its last look wakes it.
-- GIVES: wake wakes

function wake(dirty, channel, what)
  CALL.wakes = wakes() + 1
  if redis.call('SADD', dirty, what) == 1 then
    redis.call('PUBLISH', channel, '')
  end
end

-- How many marks this script has made.
function wakes()
  return CALL.wakes or 0
end

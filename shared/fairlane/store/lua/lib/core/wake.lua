-- Marks a lane, a run or the workers for the scheduler's next tick; it publishes once until the scheduler has looked.
-- GIVES: wake

function wake(dirty, channel, what)
  if redis.call('SADD', dirty, what) == 1 then
    redis.call('PUBLISH', channel, '')
  end
end

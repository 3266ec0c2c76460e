-- Tells the scheduler that something is worth a look; once, until it has looked.
-- GIVES: wake

function wake(dirty, channel, what)
  if redis.call('SADD', dirty, what) == 1 then
    redis.call('PUBLISH', channel, '')
  end
end

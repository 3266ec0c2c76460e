-- What follows from a job's end: evaluations that are ready (queued, in the order of `queues`) or over (recorded).
-- Returns how many queues that took.
-- GIVES: follow_up

function follow_up(ref, follow, queues)
  local queue = 0
  for _, step in ipairs(follow) do
    local job, state, value, lane = unpack(step)
    if state == 'ready' then
      queue = queue + 1
      redis.call('RPUSH', queues[queue], value)
      redis.call('SADD', KEY.run_lanes, lane)
      wake(KEY.dirty, ARG.channel, lane .. '|' .. ref)
    else
      conclude(job, state, value, lane)
    end
  end
  return queue
end

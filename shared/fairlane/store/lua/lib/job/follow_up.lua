-- Handles the evaluations of an ended job: queues each ready one in the next of `queues`, and records those that ended
-- with the job. Returns how many queues it used.
-- GIVES: follow_up
-- USES: core/wake job/job_record run/role_times
-- NEEDS: KEY.dirty KEY.run_lanes ARG.channel

function follow_up(ref, follow, queues, now)
  local queue = 0
  for _, step in ipairs(follow) do
    local job, state, value, lane = unpack(step)
    if state == 'ready' then
      queue = queue + 1
      redis.call('RPUSH', queues[queue], value)
      redis.call('SADD', KEY.run_lanes, lane)
      wake(KEY.dirty, ARG.channel, lane .. '|' .. ref)
    else
      record_job(job, state, value, lane)
    end
  end
  jobs_ready('eval', queue, now)
  return queue
end

-- A job's one terminal record, and the end of its item.
-- GIVES: record_job end_item
-- USES: core/time core/wake run/state_fields
-- NEEDS: KEY.dirty KEY.done KEY.finished KEY.jobs KEY.results KEY.state ARG.channel

-- Writes a job's record. Returns false if it already has one. The state 'given' does not count as a job.
function record_job(job, state, payload, lane)
  if redis.call('GETBIT', KEY.done, job) == 1 then return false end
  redis.call('HDEL', KEY.jobs, job)
  redis.call('HSET', KEY.results, job, payload)
  redis.call('SETBIT', KEY.done, job, 1)
  if state == 'given' then return true end
  add_to_field(KEY.state, 'jobs_done', 1)
  add_to_field(KEY.state, 'n:' .. state, 1)
  if lane ~= '' then add_to_field(KEY.state, 'over:' .. lane, 1) end
  return true
end

-- Ends the item of `job`, which has its record, if that was its last job. Returns whether it was. An item whose task
-- has ended, but not its evaluations, is 'pending' (lib/run/bounds.lua); a 'serial' run's next item waits for it.
function end_item(ref, job, steps)
  local step = job % steps
  for each = 0, steps - 1 do
    if each ~= step and redis.call('GETBIT', KEY.done, job - step + each) == 0 then
      if step == 0 then add_to_field(KEY.state, 'pending', 1) end
      return false
    end
  end
  if step ~= 0 then add_to_field(KEY.state, 'pending', -1) end
  redis.call('RPUSH', KEY.finished, whole((job - step) / steps))
  add_to_field(KEY.state, 'items_done', 1)
  if field_of(KEY.state, 'serial') then wake(KEY.dirty, ARG.channel, '|' .. ref) end
  return true
end

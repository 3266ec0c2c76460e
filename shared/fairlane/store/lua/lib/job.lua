-- A job's one terminal record, and the end of its item.
-- GIVES: conclude end_item

-- Records a job once and for all; false where it already has its record. What was 'given' was no job to do.
function conclude(job, state, payload, lane)
  if redis.call('SETBIT', KEY.done, job, 1) == 1 then return false end
  redis.call('HSET', KEY.results, job, payload)
  redis.call('HDEL', KEY.jobs, job)
  if state == 'given' then return true end
  redis.call('HINCRBY', KEY.state, 'jobs_done', 1)
  redis.call('HINCRBY', KEY.state, 'n:' .. state, 1)
  if lane ~= '' then redis.call('HINCRBY', KEY.state, 'over:' .. lane, 1) end
  return true
end

-- Ends the item of `job` if that was its last: true then. An item whose task is over and which has evaluations left is
-- 'pending' (lib/bounds.lua); a 'serial' run's next item waits for it.
function end_item(ref, job, steps)
  local step = job % steps
  for each = 0, steps - 1 do
    if redis.call('GETBIT', KEY.done, job - step + each) == 0 then
      if step == 0 then redis.call('HINCRBY', KEY.state, 'pending', 1) end
      return false
    end
  end
  if step ~= 0 then redis.call('HINCRBY', KEY.state, 'pending', -1) end
  redis.call('RPUSH', KEY.finished, whole((job - step) / steps))
  redis.call('HINCRBY', KEY.state, 'items_done', 1)
  if redis.call('HGET', KEY.state, 'serial') then wake(KEY.dirty, ARG.channel, '|' .. ref) end
  return true
end

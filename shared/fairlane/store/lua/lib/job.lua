-- A job's one terminal record, and the end of its item.

-- Records a job once and for all; false where it already has its record.
local function conclude(job, state, payload, lane)
  if redis.call('SETBIT', KEY.done, job, 1) == 1 then return false end
  redis.call('HSET', KEY.results, job, payload)
  redis.call('HDEL', KEY.jobs, job)
  redis.call('HINCRBY', KEY.state, 'jobs_done', 1)
  redis.call('HINCRBY', KEY.state, 'n:' .. state, 1)
  if lane ~= '' then redis.call('HINCRBY', KEY.state, 'over:' .. lane, 1) end
  return true
end

-- Ends the item of `job` if that was its last, and the run if that was its last item.
local function settle_item(ref, job, now)
  local steps, items = unpack(redis.call('HMGET', KEY.state, 'steps', 'items'))
  local first = job - job % steps
  for step = 0, steps - 1 do
    if redis.call('GETBIT', KEY.done, first + step) == 0 then return false end
  end
  redis.call('RPUSH', KEY.finished, whole(first / steps))
  if redis.call('HINCRBY', KEY.state, 'items_done', 1) < tonumber(items) then return false end
  close_run(ref, 'completed', now)
  return true
end

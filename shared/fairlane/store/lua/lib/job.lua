-- A job's one terminal record, its item's end and its run's end.
local OWNED = { 'state', 'plan', 'results', 'finished', 'done', 'jobs', 'run_lanes', 'spec', 'rows' }

-- Moves a run to a terminal state; everything it owns expires from here.
local function close_run(ref, state, now)
  redis.call('HSET', KEY.state, 'state', state, 'finished_ms', whole(now), 'in_flight', 0)
  redis.call('SREM', KEY.active, ref)
  local ttl = redis.call('HGET', KEY.state, 'ttl_ms')
  for _, name in ipairs(OWNED) do redis.call('PEXPIRE', KEY[name], ttl) end
end

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

-- What follows from a task's end: judges that are ready (queued, in KEY.hot order) or over (recorded).
local function follow_up(ref, follow)
  local queue = 0
  for _, step in ipairs(follow) do
    local job, state, value, lane = unpack(step)
    if state == 'ready' then
      queue = queue + 1
      redis.call('RPUSH', KEY.hot[queue], whole(job) .. ':' .. whole(value))
      redis.call('SADD', KEY.run_lanes, lane)
      wake(KEY.dirty, ARG.channel, lane .. '|' .. ref)
    else
      conclude(job, state, value, lane)
    end
  end
end

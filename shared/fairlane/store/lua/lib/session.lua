-- Sessions: an item that is over joins its session in its cell. The last one makes the session's evaluations ready, or
-- ends them where no item of it has an output.
-- GIVES: settle_item

local ANSWERED = 2 ^ 20 -- a tally is the items that joined, and this for each that has an output; sessions are smaller

-- `joined` is {session, cell, size, what to record where no item has an output ('': this one has), [[job, entry, lane], …]};
-- `queues` has the queue of each of these jobs.
local function join(ref, joined, queues)
  local session, cell, size, unanswered, evaluations = unpack(joined)
  local name = whole(session) .. ':' .. whole(cell)
  local tally = redis.call('HINCRBY', KEY.sessions, name, 1 + (unanswered == '' and ANSWERED or 0))
  if tally % ANSWERED < size then return end
  redis.call('HDEL', KEY.sessions, name)
  redis.call('HINCRBY', KEY.state, 'session_jobs_due', #evaluations)
  for i, each in ipairs(evaluations) do
    local job, entry, lane = unpack(each)
    if tally < ANSWERED then
      conclude(job, 'skipped', unanswered, lane)
    else
      redis.call('RPUSH', queues[i], entry)
      redis.call('SADD', KEY.run_lanes, lane)
      wake(KEY.dirty, ARG.channel, lane .. '|' .. ref)
    end
  end
end

-- Every item is over: sessions that are not complete never will be, for what their client wrote of them was wrong or
-- has gone. Their evaluations need no record.
local function end_sessions()
  local jobs, due = unpack(redis.call('HMGET', KEY.state, 'session_jobs', 'session_jobs_due'))
  local lost = tonumber(jobs) - tonumber(due or 0)
  if lost <= 0 then return end
  redis.call('HINCRBY', KEY.state, 'jobs_done', lost)
  redis.call('HINCRBY', KEY.state, 'n:skipped', lost)
  redis.call('HSET', KEY.state, 'session_jobs_due', jobs)
end

-- After a job's end: what that ends, of its item, its session and its run. `joined` is nil where the item has none.
function settle_item(ref, job, now, joined, queues)
  local fields = redis.call('HMGET', KEY.state, 'steps', 'first_session_job', 'items')
  local steps, first_session_job, items = tonumber(fields[1]), tonumber(fields[2]), tonumber(fields[3])
  if not first_session_job then
    if not end_item(ref, job, steps) then return false end
  elseif job < first_session_job then
    if not end_item(ref, job, steps) then return false end
    if joined then join(ref, joined, queues) end
    if tonumber(redis.call('HGET', KEY.state, 'items_done')) >= items then end_sessions() end
  end
  return close_if_done(ref, now)
end

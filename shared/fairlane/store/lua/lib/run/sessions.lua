-- Sessions: each ended item counts towards its session, once per cell (prompt, model, repetition). The last item
-- makes the session's evaluations ready, or ends them if no item of the session has an output.
-- GIVES: finish_item
-- USES: core/time core/wake job/job_record run/close run/role_times run/shape
--       run/state_fields
-- NEEDS: KEY.dirty KEY.run_lanes KEY.sessions KEY.state ARG.channel

-- A tally adds 1 for each ended item, and this for each with an output. Sessions have fewer items.
local ANSWERED = 2 ^ 20

-- `joined` is {session, cell, size, record, [[job, entry, lane], …]}. `record` is that of the evaluations if no item
-- has an output ('': this item has one); `queues` has the queue of each of these jobs.
local function join_session(ref, joined, queues, now)
  local session, cell, size, unanswered, evaluations = unpack(joined)
  local name = whole(session) .. ':' .. whole(cell)
  local tally = redis.call('HINCRBY', KEY.sessions, name, 1 + (unanswered == '' and ANSWERED or 0))
  if tally % ANSWERED < size then return end
  redis.call('HDEL', KEY.sessions, name)
  redis.call('HINCRBY', KEY.state, 'session_jobs_due', #evaluations)
  if tally >= ANSWERED then jobs_ready('eval', #evaluations, now) end
  for i, each in ipairs(evaluations) do
    local job, entry, lane = unpack(each)
    if tally < ANSWERED then
      record_job(job, 'skipped', unanswered, lane)
    else
      redis.call('RPUSH', queues[i], entry)
      redis.call('SADD', KEY.run_lanes, lane)
      wake(KEY.dirty, ARG.channel, lane .. '|' .. ref)
    end
  end
end

-- Ends the evaluations of sessions that are incomplete although every item has ended: the client's list of sessions was
-- wrong, or is lost. These evaluations get no record.
local function end_sessions()
  local jobs, due = unpack(redis.call('HMGET', KEY.state, 'session_jobs', 'session_jobs_due'))
  local lost = tonumber(jobs) - tonumber(due or 0)
  if lost <= 0 then return end
  add_to_field(KEY.state, 'jobs_done', lost)
  add_to_field(KEY.state, 'n:skipped', lost)
  redis.call('HSET', KEY.state, 'session_jobs_due', jobs)
end

-- Ends the item of an ended job, if that was its last; then likewise its session and its run. `joined` is nil if the
-- item has no session.
function finish_item(ref, job, now, joined, queues)
  local steps, first_session_job = steps_of_run()
  if not first_session_job then
    if not end_item(ref, job, steps) then return false end
  elseif job < first_session_job then
    if not end_item(ref, job, steps) then return false end
    if joined then join_session(ref, joined, queues, now) end
    if tonumber(field_of(KEY.state, 'items_done')) >= tonumber(field_of(KEY.state, 'items')) then end_sessions() end
  end
  return close_if_done(ref, now)
end

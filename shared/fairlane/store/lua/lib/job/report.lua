-- A worker's report of an attempt, from the arguments of attempt_finish and attempt_defer: its lease, its outcome, and
-- the changes that do not depend on what becomes of the job.
-- GIVES: reported end_reported report_reply
-- USES: circuit/circuit concurrency/late core/tries core/wake job/end_attempt lane/lease lane/state run/note_answer
--       run/release_bounds run/role_times run/state_fields
-- NEEDS: KEY.lane KEY.state ARG.attempt ARG.deadline_ms ARG.hints ARG.proxy_ms ARG.reason ARG.refusal
--       ARG.retry_after_ms ARG.sent ARG.signal ARG.used_cached ARG.used_input ARG.used_output ARG.worker

-- {signal, used, retry_after_ms, hints, reason, too_short, late, undecided}; `used` is {input, output, cached} in
-- tokens, -1 if unknown, and nil if the call was never sent. `too_short`: the run's own short deadline ended the
-- call, so the lane learns nothing from it; `late`: its lane's queue did. An 'absent' API is a server error of a lane
-- that has answered before, else the wrong address. `undecided`, which a script may set: the call says nothing about
-- whether the model rejects the run's calls.
local function outcome_of(lease, now)
  local used = ARG.sent == '1' and {
    input = tonumber(ARG.used_input), output = tonumber(ARG.used_output), cached = tonumber(ARG.used_cached),
  } or nil
  local signal, short, late = ARG.signal, false, false
  if signal == 'absent' then
    signal = redis.call('HEXISTS', KEY.lane, 'answered_n') == 1 and 'server_error' or 'answered'
  end
  if ARG.deadline_ms ~= '0' then
    local usual_ms = tonumber(redis.call('HGET', KEY.lane, 'usual_ms') or '')
    short = deadline_too_short({ usual_ms = usual_ms }, tonumber(ARG.deadline_ms))
    late = short and is_late(lease, tonumber(ARG.deadline_ms), false, now)
  elseif ARG.proxy_ms ~= '0' then
    late = is_late(lease, tonumber(ARG.proxy_ms), true, now)
  end
  return {
    signal = (short or late) and 'none' or signal, too_short = short and not late, late = late, used = used,
    retry_after_ms = tonumber(ARG.retry_after_ms), hints = ARG.hints, reason = ARG.reason,
  }
end

-- Reads what most reports need of the run's state.
local function read_reported(lease)
  local kind, role = lease.kind, lease.kind == 0 and 'task' or 'eval'
  read_fields(KEY.state, 'steps', 'first_session_job', 'held_lanes', 'serial', 'items', 'items_done', 'jobs',
    'jobs_done', 'open', 'in_flight', 'n:succeeded', 'tokens:' .. kind, 'held:' .. kind, 'pace:' .. kind,
    'calls:' .. role, 'calling_ms:' .. role, 'open:' .. role, 'over:' .. lease.lane)
end

-- Tries the keys in `kinds` (core/tries). Returns the lease of the attempt, and its outcome; nil for a late report,
-- whose worker has lost the lease: that is counted and changes nothing else. If Redis has lost the run's state, the
-- report ends the call for its lease, lane and team, and then counts as late.
function reported(now, kinds)
  CALL.wakes_before = wakes()
  local lease = held_lease(ARG.attempt, ARG.worker)
  if lease then
    try_keys(kinds)
    read_reported(lease)
    local outcome = outcome_of(lease, now)
    if field_of(KEY.state, 'steps') then return lease, outcome end
    end_attempt(lease, ARG.attempt, outcome, outcome.used, now)
    CALL.states = nil -- as drop_fields (lib/run/state_fields.lua): the run's state must not be written again
    return nil
  end
  if redis.call('EXISTS', KEY.state) == 1 then redis.call('HINCRBY', KEY.state, 'late', 1) end
end

-- Applies the outcome to the lane and the team's budgets (lib/job/end_attempt.lua), and to the run: refunds its bounds,
-- and notes the model's answer and the call's time. `used` is what the team's budgets and the run's bounds count, as
-- outcome.used; nil if another attempt counts it. Returns the lane's news.
function end_reported(lease, outcome, used, now)
  local news = end_attempt(lease, ARG.attempt, outcome, used, now)
  release_bounds(lease, outcome.signal, used)
  if outcome.undecided then
    note_undecided(lease, outcome.signal, now)
  else
    note_answer(lease, outcome.signal, ARG.refusal, ARG.reason, now)
  end
  call_ended(lease, now, outcome.used and (used and 1 or 0))
  return news
end

-- The reply to a report: JSON {in_flight, news, finished}, `exhausted` unless nil, and `unawaited` if the report woke
-- nobody and the lane's next call waits only for its rate of requests.
function report_reply(news, finished, exhausted)
  local lane = CALL.left or read_hash(KEY.lane)
  local unawaited = lane.stop == 'requests' and wakes() == CALL.wakes_before or nil
  return cjson.encode({
    in_flight = lane.inflight, news = news, finished = finished, exhausted = exhausted, unawaited = unawaited,
  })
end

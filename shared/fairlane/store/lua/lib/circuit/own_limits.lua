-- Finds out whose limit a rejection shows: the lane's, one job's (job/rejections), or one team's (circuit/suspect).
-- A model may serve none of one team's calls: the lane then forgets what it learned from that team's 429s.
-- GIVES: is_own_limit suspect_team write_judged
-- USES: circuit/circuit_constants circuit/function_rejections circuit/learned_fields circuit/refused_teams
--       circuit/suspect job/rejections lane/state run/model_refusals team/in_flight
-- NEEDS: KEY.in_flight KEY.lane KEY.state

local function is_unproved(lease)
  if not lease.learns then return false end
  return redis.call('HEXISTS', KEY.state, (refusal_fields(lease.kind, lease.lane))) == 0
end

local function forget_suspect(row, suspect)
  row.suspect, row.suspect_before, row.suspect_trial, row.suspect_n = suspect, '', '', row.granted
end

-- Whether a rejection says nothing about the lane: only this job's, or only this team's calls are rejected.
function is_own_limit(row, limits, lease, signal, retry_after_ms, now)
  local rejected = is_rejection(signal)
  local judged = rejected or signal == 'ok' or signal == 'answered'
  local of_row = judged and is_of_row(row, limits, lease, signal)
  if rejected and (lease.own or of_row) then
    row.own_rejected = (row.own_rejected or 0) + 1
    return true
  end
  if signal ~= 'limited' or not is_refused(row, team_of(lease.ref)) or not is_unproved(lease) then return false end
  delay_team(row, lease, retry_after_ms, now)
  return true
end

-- Notes a 429: of the suspect, as far as the lane knows, or of the lane. `lane` is the lane before it.
function suspect_team(row, lane, lease, retry_after_ms, now)
  local team, suspect, size = team_of(lease.ref), known(row.suspect), size_of(lease)
  if not is_unproved(lease) or suspect and suspect ~= '/' .. team then
    if suspect then forget_suspect(row, LANE) end
    return
  end
  if not suspect then
    forget_suspect(row, '/' .. team)
    row.suspect_calls, row.suspect_others, row.suspect_size, row.suspect_wait_ms = 0, 0, size, 0
    row.suspect_open = tonumber(redis.call('HGET', KEY.in_flight, team) or 0)
    row.suspect_before, row.suspect_until_ms = learned_fields(lane), lane.blocked_ms or 0
  end
  row.suspect_calls, row.suspect_size = row.suspect_calls + 1, math.min(row.suspect_size, size)
  row.suspect_wait_ms = math.max(row.suspect_wait_ms, now + retry_after_ms)
end

-- Counts an attempt of a team other than the suspect. Returns whether it proves that only the suspect has a limit.
local function acquits_lane(row, lease, signal, retry_after_ms, now)
  if lease.n == row.suspect_trial then row.suspect_trial = '' end
  if retry_after_ms > 0 then row.suspect_until_ms = math.max(row.suspect_until_ms, now + retry_after_ms) end
  if signal ~= 'ok' or lease.n <= row.suspect_n or 2 * size_of(lease) < row.suspect_size then return false end
  row.suspect_others = row.suspect_others + 1
  local calls = row.suspect_calls
  return row.suspect_open <= 0 and calls >= REFUSED_LEAST and calls + row.suspect_others >= ENOUGH_ENDED
end

-- Judges the suspect by an attempt that has ended; an answer to one of its calls clears it. If the attempt proves it,
-- ends the block by its 429s. Returns what the lane had learned before these, or nil.
local function judge_suspect(row, lease, signal, retry_after_ms, now)
  local answered, suspect = signal == 'ok' or signal == 'answered', suspect_of(row)
  if answered then admit_refused(row, lease) end
  if suspect and suspect ~= team_of(lease.ref) then
    if not acquits_lane(row, lease, signal, retry_after_ms, now) then return nil end
    local before, until_ms = row.suspect_before, row.suspect_until_ms
    row.blocked_ms, row.named_ms = math.max(until_ms, row.busy_ms or 0), math.min(row.named_ms or 0, until_ms)
    hold_refused(row, suspect, row.suspect_wait_ms, now)
    forget_suspect(row, '')
    return before
  end
  if not known(row.suspect) then return nil end
  local later = lease.n > row.suspect_n
  if suspect and not later then row.suspect_open = row.suspect_open - 1 end
  if answered and (suspect and lease.learns or not suspect and later) then forget_suspect(row, '') end
  return nil
end

-- Writes the lane after an attempt, and restores what is to be restored. Returns whether another team's call may start.
function write_judged(row, lease, signal, retry_after_ms, now)
  local tried = known(row.suspect_trial) == lease.n
  local before = judge_suspect(row, lease, signal, retry_after_ms, now)
  write_hash(KEY.lane, row)
  if before then restore_learned(KEY.lane, before, lease.granted_ms, now) end
  return before ~= nil or tried
end

-- The circuit breaker of a lane, shared by all workers: it opens while calls fail and none that started later is
-- answered, and a probe (circuit/probe) closes it. In a lane's hash:
--   fails, failures, failed_ms      failures since the first that no later call has refuted, those of them that started
--                                   apart in time, and when the last of these started
--   answered_n, answered_ms         the latest permit whose call succeeded, and when one last did
--   answered_size                   expected tokens of the call that succeeded last
--   usual_ms                        how long calls usually take
--   slowest_ms                      how long slow calls take: falls slowly towards usual_ms
-- GIVES: deadline_too_short count_end count_answer
-- USES: circuit/access circuit/blame circuit/circuit_constants circuit/doubt circuit/openings circuit/probe
--       circuit/shut_out concurrency/detector_constants lane/state team/in_flight

-- Whether a run's deadline was too short for an answer, so that a call which it ended says nothing about the lane.
function deadline_too_short(row, deadline_ms)
  if deadline_ms <= 0 then return false end
  local usual = known(row.usual_ms)
  return deadline_ms < (usual and PATIENCE * usual or PATIENCE_MS)
end

-- A failure of a team that is shut out says nothing about the lane. But if nobody else was answered since that team's
-- previous call, the lane may be down: its circuit opens.
local function fail_shut(row, limits, lease, now)
  if not lease.alone or (row.circuit or 'closed') ~= 'closed' then return end
  readmit(row, lease)
  blame(row, lease)
  begin_failures(row, lease, now)
  open_circuit(row, limits, now)
end

-- Counts a failure, unless a call that started later was answered. Failures that started together count as one: a
-- dropped link breaks fifty calls at once. The circuit opens after enough of them, unless most calls between the
-- first and this one, which had as much time, have not failed.
local function count_failure(row, limits, lease, answered_then, now)
  if lease.n <= (row.answered_n or 0) then return end
  if is_shut(row, lease) then return fail_shut(row, limits, lease, now) end
  blame(row, lease)
  row.failed_for = math.max(row.failed_for or 0, now - (lease.claimed_ms or lease.granted_ms))
  if (row.circuit or 'closed') ~= 'closed' then return end
  if not known(row.first_n) then begin_failures(row, lease, now) end
  if lease.alike then return open_circuit(row, limits, now) end
  row.fails = row.fails + 1
  if row.failures == 0 or lease.granted_ms >= row.failed_ms + CIRCUIT_APART_MS then
    row.failures, row.failed_ms = row.failures + 1, lease.granted_ms
  end
  local threshold, most = limits.outage_failures or OUTAGE_FAILURES, 2 * row.fails > lease.n - row.first_n + 1
  if row.failures >= threshold and most then return open_circuit(row, limits, now) end
  if not answered_then or row.fails >= threshold and most then
    if now >= doubt_ends(row) then row.doubted, row.doubtful, row.guests = 0, 0, 0 end
    row.doubt_for = 2 * (now - lease.granted_ms) + threshold * CIRCUIT_APART_MS
  end
end

-- Counts the end of a call. Returns whether it failed, and news of the lane's access. `row` is an edit of `lane`.
function count_end(row, lane, limits, lease, signal, reason, now)
  local denied, news = judge_access(row, lane, lease, signal, reason)
  local failed = denied or signal == 'overloaded' or signal == 'server_error' or signal == 'broken'
  local answered_then = (lane.seen_ok or 0) > (lease.ok or 0) -- another one was answered during it
  if failed then count_failure(row, limits, lease, answered_then, now) end
  if lease.probe then end_probe(row, limits, lease, signal, failed, now) end
  return failed, news
end

-- Notes a call that the provider answered; only a success proves that the lane serves others.
function count_answer(row, lease, signal, now)
  readmit(row, lease)
  if known(row.first_n) and lease.n > row.first_n then
    local blamed = blamed_team(row)
    if blamed and blamed ~= team_of(lease.ref) then unblock(row) end
    shut_out_suspect(row, lease, now)
    forget_failures(row)
  end
  if signal ~= 'ok' then return end
  if row.own_odds then row.own_odds, row.own_n = '', row.granted end
  row.answered_n, row.answered_ms = math.max(row.answered_n or 0, lease.n), now
  row.answered_size = lease.charged.input + lease.charged.output
  local took = lease.took_ms or now - (lease.claimed_ms or lease.granted_ms)
  row.usual_ms = (row.usual_ms or took) + (took - (row.usual_ms or took)) / SAMPLES
  local slowest = row.slowest_ms or took
  row.slowest_ms = math.max(took, slowest - (slowest - row.usual_ms) / SLOWEST_CALLS)
end

-- Probes: while the circuit is not closed, one call at a time tests whether the lane answers again. A probe is overdue
-- if it takes longer than calls ever did, or far longer than the outage's calls took to fail. Then another one starts,
-- and an answer to any of them closes the circuit. In a lane's hash:
--   overdue_ms    from when on the latest probe is overdue; empty if the time of calls is unknown
--   probe_ended_ms   when the latest probe failed, also one that was overdue
--   overdue_n     calls in flight up to this permit are overdue; their failures are counted already
-- GIVES: begin_probe end_probe
-- USES: buckets/buckets circuit/blame circuit/circuit_constants circuit/openings circuit/unanswered
--       concurrency/overload lane/state rate/constants

-- After how many ms a probe is not failing like the outage's calls: it may have been admitted.
local function outlived_ms(row)
  return math.max(SILENT_LEAST_MS, OUTLIVED * (row.failed_for or math.huge))
end

-- Notes that the call just admitted is a probe; of a team that is not blamed, a trial. Each overdue probe lengthens the
-- wait for the next, so that a hang takes no more of them than failures do. A held lane has no overdue probes.
function begin_probe(row, limits, team, now)
  local blamed, silent, probes = blamed_team(row), silent_ms(row), row.probes or 0
  if silent then silent = math.min(silent, outlived_ms(row)) end
  if row.circuit == 'half-open' and now >= (known(row.overdue_ms) or math.huge) then
    probes = probes + 1
    row.probes, row.overdue_n = probes, row.granted - 1
  end
  row.circuit, row.overdue_ms = 'half-open', ''
  if silent and not known(row.held_until_ms) and not row.parked then
    row.overdue_ms = now + math.max(silent, probe_delay_ms(limits, probes + 1))
  end
  if blamed and blamed ~= team then row.trial_n = row.granted end
end

local function close_circuit(row, limits, now)
  local down_ms = now - (known(row.down_ms) or 0)
  row.circuit, row.failed_ms, row.ramp_ms = 'closed', now, now - math.max(0, RAMP_MS - RAMP_OF_OUTAGE * down_ms)
  restore_window(row)
  empty_buckets(row, limits, row, now)
end

-- Ends a probe. A lane whose circuit closes starts with empty buckets and a ramp: no burst into a recovering
-- provider.
function end_probe(row, limits, lease, signal, failed, now)
  if row.trial_n == lease.n then row.trial_n = '' end
  if row.circuit ~= 'half-open' then return end
  local overdue = lease.n <= (row.overdue_n or 0)
  if failed then
    row.probe_ended_ms = now
    if overdue then return end
    row.probes = (row.probes or 0) + 1
    open_circuit(row, limits, now)
  elseif signal == 'none' or signal == 'unsent' then
    if not overdue then row.circuit, row.open_ms = 'open', now end
  else
    if not shut_out_suspect(row, lease, now) then close_circuit(row, limits, now) end
    forget_failures(row)
  end
end

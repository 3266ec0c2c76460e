-- Probes: while the circuit is not closed, one call at a time shows whether the lane answers again. A probe that takes
-- longer than calls ever did, or far longer than the outage's calls took to fail, is overdue: another one starts, and
-- an answer to any of them closes the circuit. In a lane's hash:
--   overdue_ms    when the latest probe is overdue; empty where nobody knows how long calls take
--   probe_ended_ms   when the latest probe failed, also one that was overdue
--   overdue_n     permits up to this one that have not ended are overdue; their failures are counted already
-- GIVES: begin_probe end_probe
-- USES: buckets/buckets circuit/blame circuit/circuit_constants circuit/openings circuit/unanswered
--       concurrency/overload lane/state rate/constants

-- After how long a probe is no failure like those of its outage, as it may have been admitted.
local function outlived_ms(row)
  return math.max(SILENT_LEAST_MS, OUTLIVED * (row.failed_for or math.huge))
end

-- Notes that the call just admitted is a probe. One of a team that is not blamed is a trial. The wait for a probe grows
-- with each that was in vain, so a hang swallows no more of them than failures would. A held lane waits for its own.
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
    if not acquit(row, lease, now) then close_circuit(row, limits, now) end
    forget_failures(row)
  end
end

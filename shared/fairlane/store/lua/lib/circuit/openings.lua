-- How a lane's circuit opens and closes. In the lane's hash:
--   circuit, open_ms    closed | open | half-open, and when the next probe may start
--   first_n, down_ms    the first failure that no later call has refuted, and since when the lane is down
--   probes, failed_for  how many probes failed or were overdue since, and how many ms the slowest failure took
-- GIVES: begin_failures forget_failures shut_out_suspect open_circuit probe_delay_ms
-- USES: circuit/blame circuit/circuit_constants circuit/shut_out lane/state team/in_flight

function begin_failures(row, lease, now)
  row.first_n, row.fails, row.failures, row.down_ms = lease.n, 0, 0, now
  row.failed_for = now - (lease.claimed_ms or lease.granted_ms)
end

-- Forgets failures: a call that started later was answered.
function forget_failures(row)
  row.first_n, row.fails, row.failures, row.doubt_for, row.probes = '', 0, 0, '', 0
  -- An open circuit stays open until a probe. The lane keeps whose calls opened it, and since when it is down.
  if (row.circuit or 'closed') == 'closed' then row.fail_team, row.down_ms = '', '' end
end

-- Shuts out the team whose calls alone have failed, after a later call of another team was answered: the lane is up.
-- Returns whether it did. Other teams continue without a probe or a ramp.
function shut_out_suspect(row, lease, now)
  local team = blamed_team(row)
  if not team or team == team_of(lease.ref) or known(row.held_until_ms) then return false end
  if (row.circuit or 'closed') == 'closed' then return false end
  shut_out(row, team, known(row.first_n) or lease.n, now)
  row.circuit = 'closed'
  return true
end

-- Milliseconds until the next probe, after so many `probes` that failed.
function probe_delay_ms(limits, probes)
  local first, longest = limits.outage_delay or OUTAGE_DELAY_S, limits.outage_longest_delay or OUTAGE_LONGEST_S
  local delay = first * (limits.outage_growth or OUTAGE_GROWTH) ^ math.min(probes, 64)
  return math.ceil(1000 * math.min(longest, delay))
end

function open_circuit(row, limits, now)
  row.circuit, row.doubt_for, row.open_ms = 'open', '', now + probe_delay_ms(limits, row.probes or 0)
end

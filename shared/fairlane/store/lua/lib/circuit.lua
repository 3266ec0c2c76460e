-- The circuit breaker of a lane, shared by all workers: consecutive network failures open it, one probe closes it.
-- GIVES: count_failure end_probe

local CIRCUIT_FAILURES, CIRCUIT_APART_MS, CIRCUIT_OPEN_MS = 5, 50, 30000

local function open_circuit(row, now)
  row.circuit, row.open_ms, row.failures = 'open', now + CIRCUIT_OPEN_MS, 0
end

-- Failures count while their attempts started apart in time: one dropped link with fifty calls on it is one. Those
-- that started before the circuit opened say nothing new.
function count_failure(row, lease, now)
  if (row.circuit or 'closed') ~= 'closed' then return end
  if lease.granted_ms < (row.failed_ms or -CIRCUIT_APART_MS) + CIRCUIT_APART_MS then return end
  row.failures, row.failed_ms = (row.failures or 0) + 1, lease.granted_ms
  if row.failures >= CIRCUIT_FAILURES then open_circuit(row, now) end
end

-- A probe's end. A lane whose circuit closes starts with empty buckets and a ramp: no burst into what recovers.
function end_probe(row, limits, lease, signal, now)
  if not lease.probe then return end
  if signal == 'broken' then
    open_circuit(row, now)
  elseif signal == 'none' then
    row.circuit, row.open_ms = 'open', now
  else
    row.circuit, row.failures, row.failed_ms, row.ramp_ms = 'closed', 0, now, now
    empty(row, limits, row, now)
  end
end

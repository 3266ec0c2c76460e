-- Compares a call's speed with that of its run's calls of the same kind, since models and prompts differ in speed. A
-- run keeps 'pace:<kind>': the number of calls, their latency per token in ms, and how many count as its first. In a
-- lane's hash:
--   token_ms   the average latency per token of its latest calls
-- GIVES: slowness_of
-- USES: concurrency/detector_constants run/state_fields
-- NEEDS: KEY.state

-- The factor by which a call was slower than its kind, per output token, since long answers take long. The worker's own
-- measurement counts: the time between two scripts includes stalls of Redis or of the worker's connection.
-- nil for the first calls of its kind, which show what is usual: as many as were in flight when the first one ended.
-- Quick calls end first, so fewer of them would make all others look slow. Later calls that `queue` do not become
-- usual.
function slowness_of(row, lease, used, now, queue)
  local took_ms = lease.took_ms or now - (lease.claimed_ms or lease.granted_ms)
  local token_ms = math.max(1, took_ms) / (FIRST_TOKEN + math.max(0, used and used.output or 0))
  row.token_ms = (row.token_ms or token_ms) + (token_ms - (row.token_ms or token_ms)) / SAMPLES
  local field = 'pace:' .. lease.kind
  local count, usual, first = string.match(field_of(KEY.state, field) or '', '^(%d+) (%S+) (%d+)$')
  count, usual = tonumber(count or 0) + 1, tonumber(usual or token_ms)
  first = tonumber(first) or math.min(PACE_CALLS, math.max(SAMPLES, row.inflight or 0))
  local weight = count <= first and 1 / count or queue and 0 or 1 / PACE_CALLS
  local pace = usual + weight * (token_ms - usual)
  set_field(KEY.state, field, string.format('%d %.6g %d', math.min(count, PACE_CALLS), pace, first))
  return count > first and token_ms / usual or nil
end

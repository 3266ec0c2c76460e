-- How much slower a call was than those of its run and call kind, since models and prompts differ in speed, whatever
-- the lane. A run keeps 'pace:<kind>': the number of calls, their latency per token, and how many count as its first.
-- In a lane's hash:
--   token_ms   its latest latency per token
-- GIVES: slowness
-- USES: concurrency/detector_constants run/state_fields
-- NEEDS: KEY.state

-- How much slower a call was than its kind, per token of output, since long answers take long. The worker measures the
-- call: the time between two scripts also holds that in which Redis or the worker's connection stood still.
-- nil for the first calls of its kind, which say what is usual: as many as were in flight when the first one ended. Of
-- calls that start together the quick ones end first, so fewer would make all others look slow. After them, calls that
-- `queue` do not become usual.
function slowness(row, lease, used, now, queue)
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

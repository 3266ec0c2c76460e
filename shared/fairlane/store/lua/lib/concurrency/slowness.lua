-- How much slower a call was than those of its run and call kind, since models and prompts differ in speed, whatever
-- the lane. A run keeps 'pace:<kind>': the number of calls and their latency per token. In a lane's hash:
--   token_ms   its latest latency per token
-- GIVES: slowness
-- USES: concurrency/detector_constants
-- NEEDS: KEY.state

-- How much slower a call was than its kind, per token of output, since long answers take long. The worker measures the
-- call: the time between two scripts also holds that in which Redis or the worker's connection stood still.
function slowness(row, lease, used, now)
  local took_ms = lease.took_ms or now - (lease.claimed_ms or lease.granted_ms)
  local token_ms = math.max(1, took_ms) / (FIRST_TOKEN + math.max(0, used and used.output or 0))
  row.token_ms = (row.token_ms or token_ms) + (token_ms - (row.token_ms or token_ms)) / SAMPLES
  local field = 'pace:' .. lease.kind
  local count, usual = string.match(redis.call('HGET', KEY.state, field) or '', '^(%d+) (%S+)$')
  count, usual = tonumber(count or 0) + 1, tonumber(usual or token_ms)
  local pace = usual + (token_ms - usual) / (count <= SAMPLES and count or PACE_CALLS)
  redis.call('HSET', KEY.state, field, string.format('%d %.6g', math.min(count, PACE_CALLS), pace))
  return token_ms / usual
end

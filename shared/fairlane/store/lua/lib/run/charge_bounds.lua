-- Charges a run's bounds (lib/run/bounds.lua) for a job that starts; lib/run/release_bounds.lua refunds it.
-- GIVES: charge_bounds
-- USES: core/time run/bounds tokens/expected_lengths

-- `run` is that of bounds_of. The lease records the charge; lane/new_lease counts the run's calls in flight.
function charge_bounds(run, entry, lease, now)
  run.in_flight = (run.in_flight or 0) + 1
  if not run.bounded then return end
  local task = is_task(run, entry.job)
  if task then
    lease.task, run.tasks_in_flight = 1, (run.tasks_in_flight or 0) + 1
    redis.call('HINCRBY', run.key, 'tasks_in_flight', 1)
  end
  local role = task and 'task' or 'eval'
  local gap = run[role .. '_gap_ms']
  if gap then
    run[role .. '_next_ms'] = math.max(run[role .. '_next_ms'] or 0, now) + gap
    redis.call('HSET', run.key, role .. '_next_ms', run[role .. '_next_ms'])
  end
  if run.delay_ms then
    run.lane_next_ms = now + run.delay_ms
    redis.call('HSET', run.key, 'next_ms:' .. run.lane, whole(run.lane_next_ms))
  end
  if run.budget_tokens or run.budget_cost then
    local most = most_tokens(entry, run.key)
    lease.held = { most.input + most.output, cost_of(run.key, entry.kind, most) }
    run.tokens, run.cost = (run.tokens or 0) + lease.held[1], (run.cost or 0) + lease.held[2]
    redis.call('HSET', run.key, 'tokens', whole(run.tokens), 'cost', run.cost)
  end
end

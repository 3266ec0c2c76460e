-- A run's own bounds, in addition to its lanes' limits: concurrent calls, how far tasks may be ahead of their
-- evaluations, starts per second, and a budget. A run without bounds has no field 'bounded'. A paused run starts
-- nothing. Nor does one whose state Redis has lost (`lost`): the costs of its calls are unknown.
-- GIVES: bounds_of is_task cost_of bound_reached wake_when_released
-- USES: run/price tokens/expected_lengths

local PACE_SLACK_MS = 100 -- ms of late starts that later starts may catch up on (the tolerance of a leaky bucket)

local FIELDS = {
  'bounded', 'steps', 'first_session_job', 'in_flight', 'tasks_in_flight', 'pending', 'max_concurrent', 'cap',
  'task_gap_ms', 'eval_gap_ms', 'task_next_ms', 'eval_next_ms', 'delay_ms', 'budget_tokens', 'budget_cost', 'tokens',
  'cost',
}

function bounds_of(key, lane)
  local run = { key = key, lane = lane }
  local marks = redis.call('HMGET', key, 'bounded', 'paused_ms', 'state')
  run.paused, run.lost = marks[2], not marks[3]
  if not marks[1] then return run end
  local values = redis.call('HMGET', key, unpack(FIELDS))
  for i, name in ipairs(FIELDS) do run[name] = tonumber(values[i]) end
  run.in_flight = run.in_flight or 0 -- not set before the run's first call
  if run.delay_ms then run.lane_next_ms = tonumber(redis.call('HGET', key, 'next_ms:' .. lane)) end
  return run
end

function is_task(run, job)
  return job % run.steps == 0 and job < (run.first_session_job or math.huge)
end

-- The cost of a call that is charged `tokens`, in millionths of a dollar.
function cost_of(key, kind, tokens)
  local input, output = price_of(key, kind)
  return tokens.input * input + tokens.output * output
end

-- Notes in `run.over` the budget that a call would exceed, the most that it may use, and what is left.
local function exceeds(run, budget, used, wanted)
  if used + wanted <= run[budget] then return false end
  run.over = { budget, wanted, run[budget] - used }
  return true
end

-- Whether a call could exceed a budget.
local function budget_exceeded(run, entry)
  if not run.budget_tokens and not run.budget_cost then return false end
  local most = most_tokens(entry, run.key)
  if run.budget_tokens and exceeds(run, 'budget_tokens', run.tokens or 0, most.input + most.output) then return true end
  return run.budget_cost and exceeds(run, 'budget_cost', run.cost or 0, cost_of(run.key, entry.kind, most))
end

-- The bound that stops a job of the run from starting, and when to ask again (0: when woken); nil if it may start.
-- `ahead`: most items whose task has started and whose evaluations have not ended (0: no limit). `leases`: calls in
-- flight of all runs.
function bound_reached(run, entry, fresh, ahead, leases, now)
  if run.paused then return 'run_paused', 0 end
  if not run.bounded then return nil end
  local task = is_task(run, entry.job)
  if run.cap and leases >= run.cap then return 'cap', 0 end
  if run.max_concurrent and run.in_flight >= run.max_concurrent then return 'max_concurrent', 0 end
  local begun = (run.tasks_in_flight or 0) + (run.pending or 0)
  if fresh and task and ahead > 0 and begun >= ahead then return 'ahead', 0 end
  local role = task and 'task' or 'eval'
  local next_ms = run[role .. '_gap_ms'] and run[role .. '_next_ms'] or 0
  if now < next_ms - PACE_SLACK_MS then return role .. '_rate', math.ceil(next_ms - PACE_SLACK_MS) end
  if run.lane_next_ms and now < run.lane_next_ms then return 'delay', run.lane_next_ms end
  if budget_exceeded(run, entry) then return 'budget', 0 end
  return nil
end

-- Has the lane woken when an attempt of the run ends.
function wake_when_released(run)
  local lanes = redis.call('HGET', run.key, 'held_lanes') or ''
  if not string.find(lanes, run.lane .. '\n', 1, true) then
    redis.call('HSET', run.key, 'held_lanes', lanes .. run.lane .. '\n')
  end
end

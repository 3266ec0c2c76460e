-- A run's own bounds on what may start, beside its lanes': how many calls at once, how far tasks run ahead of their
-- evaluations, how many starts a second, and a budget. A run without any has no field 'bounded'. One that is paused
-- starts nothing.
-- GIVES: bounds_of bound start hold_lane

local PACE_SLACK_MS = 100 -- a pace may be made up for so much lost time (the tolerance of a leaky bucket)

local FIELDS = {
  'bounded', 'steps', 'first_session_job', 'in_flight', 'tasks_in_flight', 'pending', 'max_concurrent', 'cap', 'task_gap_ms', 'eval_gap_ms',
  'task_next_ms', 'eval_next_ms', 'delay_ms', 'budget_tokens', 'budget_cost', 'tokens', 'cost',
}

function bounds_of(key, lane)
  local run = { key = key, lane = lane }
  local marks = redis.call('HMGET', key, 'bounded', 'paused_ms')
  run.paused = marks[2]
  if not marks[1] then return run end
  local values = redis.call('HMGET', key, unpack(FIELDS))
  for i, name in ipairs(FIELDS) do run[name] = tonumber(values[i]) end
  run.in_flight = run.in_flight or 0 -- a run that has not begun has no such field
  if run.delay_ms then run.lane_next_ms = tonumber(redis.call('HGET', key, 'next_ms:' .. lane)) end
  return run
end

local function is_task(run, job)
  return job % run.steps == 0 and job < (run.first_session_job or math.huge)
end

-- What a call that is charged `tokens` costs, in millionths of a dollar.
local function cost_of(key, kind, tokens)
  local price = redis.call('HGET', key, 'price:' .. kind)
  if not price then return 0 end
  local input, output = string.match(price, '^(%S+) (%S+)$')
  return tokens.input * tonumber(input) + tokens.output * tonumber(output)
end

-- What keeps a job of the run from starting, and when that may be over (0: when woken). `ahead`: 0 is any number.
function bound(run, entry, fresh, reserved, ahead, leases, now)
  if run.paused then return 'run_paused', 0 end
  if not run.bounded then return nil end
  local task = is_task(run, entry.job)
  if run.cap and leases >= run.cap then return 'cap', 0 end
  if run.max_concurrent and run.in_flight >= run.max_concurrent then return 'max_concurrent', 0 end
  if fresh and task and ahead > 0 and (run.tasks_in_flight or 0) + (run.pending or 0) >= ahead then return 'ahead', 0 end
  local role = task and 'task' or 'eval'
  local next_ms = run[role .. '_gap_ms'] and run[role .. '_next_ms'] or 0
  if now < next_ms - PACE_SLACK_MS then return role .. '_rate', math.ceil(next_ms - PACE_SLACK_MS) end
  if run.lane_next_ms and now < run.lane_next_ms then return 'delay', run.lane_next_ms end
  if run.budget_tokens and (run.tokens or 0) + reserved.input + reserved.output > run.budget_tokens then return 'budget', 0 end
  if run.budget_cost and (run.cost or 0) + cost_of(run.key, entry.kind, reserved) > run.budget_cost then return 'budget', 0 end
  return nil
end

-- Notes that a job of the run starts; what it adds is in the lease, for lib/leave.lua to take back.
function start(run, entry, reserved, lease, now)
  run.in_flight = (run.in_flight or 0) + 1
  redis.call('HINCRBY', run.key, 'in_flight', 1)
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
    lease.held = { reserved.input + reserved.output, cost_of(run.key, entry.kind, reserved) }
    run.tokens, run.cost = (run.tokens or 0) + lease.held[1], (run.cost or 0) + lease.held[2]
    redis.call('HSET', run.key, 'tokens', whole(run.tokens), 'cost', run.cost)
  end
end

-- A run is held back until something of it ends: the lane is then to be looked at again.
function hold_lane(run)
  local lanes = redis.call('HGET', run.key, 'held_lanes') or ''
  if not string.find(lanes, run.lane .. '\n', 1, true) then
    redis.call('HSET', run.key, 'held_lanes', lanes .. run.lane .. '\n')
  end
end

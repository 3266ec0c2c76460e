-- Margins: what stays in the token buckets for the risk that calls use more tokens than they were charged.
-- GIVES: margins_of bound_guess
-- USES: buckets/token_bucket lane/state rate/constants reported/free tokens/amounts tokens/length_constants
--       tokens/token_charges

-- The factor by which a quantile is less sure after `calls` answers than after many. The predictive distribution of an
-- exponential variable after k values is a Lomax distribution, whose quantile at risk p is k (p^(-1/k) - 1) means.
local function unsure(calls)
  if calls < 1 then return 1 end
  return (calls * (RISK ^ (-1 / calls) - 1) - 1) / (-math.log(RISK) - 1)
end

-- Returns by how much `count` calls in flight may exceed their expected usage at the risk RISK, and the standard
-- deviation of those others whose excess spilled tokens have not paid for. All calls share the error of the expected
-- mean, which is from `calls` answers: the variance of a sum of n, less n times that mean, is v (n + n²/calls). If few
-- calls make most of a sum, its excess is that of the longest: the principle of a single big jump (Foss, Korshunov and
-- Zachary 2013).
local function excess_of(lane, axis, spread, count)
  local own, others = 0, 0
  if axis ~= 'output' then own, others = spread.input, (lane.prompt_miss or 0) end
  if axis ~= 'input' then own, others = own + spread.output, others + (lane.answer_miss or 0) end
  local each = math.max(others, own)
  local var = (count - 1) * each + own * (1 + count * count / math.max(1, spread.calls))
  local excess = RISK_Z * unsure(spread.calls) * math.sqrt(var)
  if axis ~= 'input' then excess = math.max(excess, spread.peak) end
  return excess, math.sqrt(math.min(count - 1, CALLS_UNPAID) * each)
end

-- The factor on the wait beyond a full bucket: less with each call since the last 429, and 0 once the refusal budget
-- pays for one.
local function excess_factor(lane, limits, axis)
  local last = math.max(lane[axis .. '_excused'] or 0, lane.sign or 0)
  local calls = math.max(0, (lane.granted or 0) - (lane.inflight or 0) - last)
  return math.max(0, 1 - calls * (limits.refusal_budget or REFUSAL_BUDGET))
end

-- What must stay in the buckets when a call that is charged `reserved` starts, {<axis>: tokens}, for the risk that
-- calls in flight use more than expected. In a bucket that is deeper than the call, this costs nothing. Otherwise the
-- call waits beyond full: what spills meanwhile pays for calls in flight that use more. It waits at most for a part of
-- their standard deviation, as more gains little and costs rate, and at most for a full bucket, which is all that ever
-- spills. If a configured burst holds only a part of a call, it waits for that part: a provider that takes such calls
-- has saved more than is configured. Half of what a configured burst keeps for late calls counts, too: calls are seldom
-- late and long at once.
function margins_of(lane, limits, buckets, reserved, spread)
  local margins = {}
  if not spread then return margins end
  local count = (lane.inflight or 0) + 1
  for _, bucket in ipairs(buckets) do
    local axis = bucket.axis
    if headroom_key(axis) then
      local full, takes = bucket.full / UNIT, math.max(1, amount_on(axis, reserved))
      local excess, others = excess_of(lane, axis, spread, count)
      local depth, spills = math.max(0, full - takes), math.floor(full)
      if limits[CONFIGURED[axis]] then spills = math.floor(full * math.min(1, full / takes)) end
      others = others * excess_factor(lane, limits, axis)
      if spread.guessed and count > FIRST_CALLS then excess = math.huge end
      local spare = bucket.spare_ms * bucket.pace / UNIT + spare_shown(lane, axis)
      margins[axis] = math.max(0, math.min(excess - spare, depth + BEYOND_FULL * others, spills))
    end
  end
  return margins
end

-- Bounds the charge of a guessed answer to a full bucket. With more, each call would wait until the previous call's
-- debt is earned, and a shallow bucket would let only one call through at a time.
function bound_guess(buckets, reserved, spread)
  if not spread or not spread.guessed then return end
  for _, bucket in ipairs(buckets) do
    local axis, most = bucket.axis, math.floor(bucket.full / UNIT)
    if axis == 'tokens' then most = most - reserved.input end
    if axis == 'tokens' or axis == 'output' then reserved.output = math.max(1, math.min(reserved.output, most)) end
  end
end

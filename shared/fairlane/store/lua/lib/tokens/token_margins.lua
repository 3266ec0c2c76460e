-- What is left in the token buckets for the risk that calls use more tokens than they were charged.
-- GIVES: margins_of bound_guess
-- USES: buckets/token_bucket lane/state rate/constants tokens/amounts tokens/length_constants tokens/token_charges

-- How much more than from many answers `calls` of them leave open, as a factor: the predictive distribution of an
-- exponential variable after k values is a Lomax distribution, whose quantile at risk p is k (p^(-1/k) - 1) means.
local function unsure(calls)
  if calls < 1 then return 1 end
  return (calls * (RISK ^ (-1 / calls) - 1) - 1) / (-math.log(RISK) - 1)
end

-- By how much the `count` calls in flight with this one may exceed what is expected of them all, at the risk RISK.
-- Then the standard deviation of those others that nothing has paid for beyond full. The mean that is expected is
-- that of `calls` answers, whose own error all calls share: the variance of a sum of n less n times that mean is v (n
-- + n²/calls). Where few calls make most of a sum, its excess is that of the longest. That is the principle of a
-- single big jump (Foss, Korshunov and Zachary 2013).
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

-- How much of the wait beyond a full bucket is worth its time: less with each call since the last refusal, and nothing
-- once the refusal budget pays for one.
local function caution(lane, limits, axis)
  local last = math.max(lane[axis .. '_excused'] or 0, lane.sign or 0)
  local calls = math.max(0, (lane.granted or 0) - (lane.inflight or 0) - last)
  return math.max(0, 1 - calls * (limits.refusal_budget or REFUSAL_BUDGET))
end

-- What is to be left in the buckets when a call that is charged `reserved` starts, {<axis>: tokens}, for the risk
-- that the calls in flight use more than is expected of them. As far as a bucket is deeper than the call, that costs
-- nothing. Where it is not, the call waits beyond full: what spills meanwhile pays for calls in flight that use more.
-- But it waits no longer than for a part of their standard deviation: more gains little and costs the whole rate. And
-- it waits for no more than a full bucket, which is all that ever spills. Of a configured burst that holds a part of a
-- call, it waits for that part: a provider that takes such calls has saved more than is configured. Half of what a
-- configured burst keeps for late calls counts too: seldom are calls late and long at once.
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
      others = others * caution(lane, limits, axis)
      if spread.guessed and count > FIRST_CALLS then excess = math.huge end
      local spare = bucket.spare_ms * bucket.pace / UNIT
      margins[axis] = math.max(0, math.min(excess - spare, depth + BEYOND_FULL * others, spills))
    end
  end
  return margins
end

-- Lets a guessed answer take no more than a full bucket: with a longer one, each call would wait until the debt of
-- the call before is earned. A shallow bucket would let one call through at a time.
function bound_guess(buckets, reserved, spread)
  if not spread or not spread.guessed then return end
  for _, bucket in ipairs(buckets) do
    local axis, most = bucket.axis, math.floor(bucket.full / UNIT)
    if axis == 'tokens' then most = most - reserved.input end
    if axis == 'tokens' or axis == 'output' then reserved.output = math.max(1, math.min(reserved.output, most)) end
  end
end

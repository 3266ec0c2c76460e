-- The rate that follows from an estimate, a minute: a curve from just below the estimate back to it, and then probes
-- beyond. Each axis of a lane keeps
--   <axis>_est, _var   the estimate and its variance (a minute, and squared), learned from 429s; before the first
--                      429, while `_age_ms` is '', the rate of slow start
--   <axis>_age_ms      for how many ms since the last 429 this rate limited jobs
--   <axis>_climb_ms    for how many ms it has grown since a rise was proved; `_back_ms`, `_slow` and
--                      `_window` are planned by lib/rate/refusal_budget.lua
--   <axis>_slope       the steepest growth in e-folds a minute, if the provider rejects a faster one
-- GIVES: doubt is_unsure back_ms below_estimate curve
-- USES: lane/counts lane/state rate/constants

-- The relative standard deviation of an estimate.
function doubt(row, axis)
  return math.sqrt(row[axis .. '_var'] or 0) / row[axis .. '_est']
end

-- Whether an estimate is so unsure that the lane still searches its limit.
function is_unsure(row, axis)
  return doubt(row, axis) > KNOWN_WITHIN
end

-- The factor that shortens the way back to an unsure estimate, and beyond it.
local function return_factor(row, axis)
  return math.max(SOONEST, math.min(1, SURE / math.max(doubt(row, axis), 1e-9)))
end

-- How long after a 429 a saturated lane is back at its estimate: CUBIC's K (RFC 9438, section 4.2), in ms.
function back_ms(row, axis)
  local ms, hurry = row[axis .. '_back_ms'] or BACK_MS, return_factor(row, axis)
  return hurry * math.max(ms, math.min(BACK_MOST_MS, BACK_CALLS * 60000 / calls_a_minute(row, axis)))
end

-- Whether the lane is still on its way back to the estimate.
function below_estimate(row, axis)
  return known(row[axis .. '_est']) and (known(row[axis .. '_age_ms']) or math.huge) < back_ms(row, axis)
end

-- The time in which a rate above its estimate grows e-fold, in ms.
local function climb_ms(row, axis)
  local calls_ms = CLIMB_CALLS * 60000 / calls_a_minute(row, axis)
  if not is_unsure(row, axis) then return math.max(CLIMB_MS, calls_ms) end
  return math.max(UNSURE_CLIMB_MS, calls_ms * return_factor(row, axis))
end

-- The factor by which a lane exceeds its estimate `past` ms after it was back: a little, until more went through than
-- the estimate allows. That proves a rise, and from then on the rate grows faster.
local function excess(row, axis, past, back)
  local probe = CUT * (past / back) ^ 3
  if row[axis .. '_slow'] ~= 1 then
    probe = math.min(PROBE, CUT * (past / math.min(back, PROBE_MS)) ^ 3)
  end
  return (1 + probe) * math.exp((row[axis .. '_climb_ms'] or 0) / climb_ms(row, axis))
end

-- The rate that follows from an estimate `age` ms after its last 429; nil without an estimate. It follows CUBIC's
-- curve from just below the estimate back to it, and then probes beyond.
function curve(row, axis)
  local est = known(row[axis .. '_est'])
  local age = est and known(row[axis .. '_age_ms'])
  if not age then return est end
  local back = back_ms(row, axis)
  if age < back then
    local cut = math.max(LEAST_CUT, math.min(CUT, SURPRISE * doubt(row, axis)))
    return est * (1 - cut * ((back - age) / back) ^ 3)
  end
  local rate = est * excess(row, axis, age - back, back)
  local slope = known(row[axis .. '_slope'])
  return slope and math.min(rate, est * math.exp(slope * age / 60000)) or rate
end

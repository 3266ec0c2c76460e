-- The rate that an axis is believed to allow, a minute: how fast its calls may start. Each axis of a lane keeps
--   <axis>_est, _var   the estimate and its variance (a minute, and squared), learned from 429s; before the first
--                      429, while `_age_ms` is '', the rate of slow start
--   <axis>_age_ms      for how long since the last 429 this rate was what limited jobs
--   <axis>_climb_ms    for how long it has grown since a rise was proved; `_back_ms`, `_slow` and
--                      `_window` are planned by lib/lane/refusal_budget.lua
--   <axis>_slope       the steepest growth, e-folds a minute, where a provider rejects a faster one; the rate stays
--                      below `_top` until `_top_until_ms`
--   <axis>_reported    the limit in the provider's headers; `_foreign` is what others were seen to take of it at
--                      `_foreign_ms`, `_free` what was left of it when last reported
-- GIVES: known doubt is_unsure below_estimate back_ms curve others_rate learned_rate ramp slow_start forget_rate
-- USES: lane/constants lane/others_constants

function known(value)
  return value and value ~= '' and value or nil
end

-- The relative standard deviation of an estimate.
function doubt(row, axis)
  return math.sqrt(row[axis .. '_var'] or 0) / row[axis .. '_est']
end

-- Whether an estimate is so unsure that the lane still searches its limit.
function is_unsure(row, axis)
  return doubt(row, axis) > KNOWN_WITHIN
end

-- The factor by which a lane hurries back to an estimate, and beyond it, that is not sure.
local function sooner(row, axis)
  return math.max(SOONEST, math.min(1, SURE / math.max(doubt(row, axis), 1e-9)))
end

-- How long after a 429 a saturated lane is back at its estimate: CUBIC's K (RFC 9438, section 4.2), in ms.
function back_ms(row, axis)
  local ms, hurry = row[axis .. '_back_ms'] or BACK_MS, sooner(row, axis)
  if axis ~= 'requests' then return ms * hurry end
  return hurry * math.max(ms, math.min(BACK_MOST_MS, BACK_CALLS * 60000 / row[axis .. '_est']))
end

-- Whether the lane is still on its way back to the estimate.
function below_estimate(row, axis)
  return known(row[axis .. '_est']) and (known(row[axis .. '_age_ms']) or math.huge) < back_ms(row, axis)
end

-- The time in which a rate above its estimate grows e-fold, in ms.
local function climb_ms(row, axis)
  local calls_ms = CLIMB_CALLS * 60000 / (known(row.requests_est) or START_PER_MINUTE)
  if not is_unsure(row, axis) then return math.max(CLIMB_MS, calls_ms) end
  return math.max(UNSURE_CLIMB_MS, calls_ms * sooner(row, axis))
end

-- The factor by which a lane exceeds its estimate `past` ms after it was back: a little until it has had more than the
-- estimate allows, which proves a rise, and from then on ever more.
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
  local est, age, slope = known(row[axis .. '_est']), known(row[axis .. '_age_ms']), known(row[axis .. '_slope'])
  if not est or not age then return est end
  local back = back_ms(row, axis)
  if age < back then
    local cut = math.max(LEAST_CUT, math.min(CUT, SURPRISE * doubt(row, axis)))
    return est * (1 - cut * ((back - age) / back) ^ 3)
  end
  local rate = est * excess(row, axis, age - back, back)
  return slope and math.min(rate, est * math.exp(slope * age / 60000)) or rate
end

-- What others take of an axis, a minute. Whoever is not seen taking it any more, is believed to take less and less.
function others_rate(row, axis)
  local unseen_ms = (row.asked_ms or 0) - (row[axis .. '_foreign_ms'] or 0) - UNSEEN_MS
  local rate = (row[axis .. '_foreign'] or 0) * 0.5 ^ math.max(0, unseen_ms / UNSEEN_HALF_MS)
  return rate >= SHARED_FROM * (known(row[axis .. '_reported']) or 0) and rate or 0
end

-- What a reported limit leaves to the lane, a minute. Of what is shown to be left, a part is free whoever is thought
-- to use the rest.
local function left_of(row, axis, reported)
  local others = others_rate(row, axis)
  local free = others > 0 and FREE_OF_LEFT * (row[axis .. '_free'] or 0) or 0
  local most = reported * UNDER_REPORTED
  return math.min(most, math.max(LEAST_OF_REPORTED * reported, most - others, free))
end

-- The learned rate, a minute; nil where nothing limits the axis.
function learned_rate(row, axis, configured)
  local reported, rate = known(row[axis .. '_reported']), curve(row, axis)
  if not rate and axis == 'requests' and not reported and not configured then rate = START_PER_MINUTE end
  if rate and (row[axis .. '_top_until_ms'] or 0) > (row.asked_ms or 0) then
    rate = math.min(rate, row[axis .. '_top'])
  end
  if reported then
    local left = left_of(row, axis, reported)
    rate = math.min(rate or left, left)
  end
  return rate and math.max(LEAST_PER_MINUTE, LEAST_OF_CONFIGURED * (configured or 0), math.min(MOST_PER_MINUTE, rate))
end

-- The share of its rate that a lane uses just after its circuit closed or its Redis came back.
function ramp(row, now)
  local since = now - (row.ramp_ms or -RAMP_MS)
  return since >= RAMP_MS and 1 or math.max(RAMP_FROM, since / RAMP_MS)
end

-- Slow start (TCP's, RFC 5681): one more call in flight for each success, while the rate is what limits jobs.
function slow_start(row, limits, lease, now)
  if limits.requests_per_minute or known(row.requests_reported) or known(row.requests_age_ms) then return end
  if known(row.shut) or row.stop ~= 'requests' then return end
  local rate = known(row.requests_est) or START_PER_MINUTE
  row.requests_est = math.min(MOST_PER_MINUTE, rate + math.min(rate / 2, 60000 / math.max(1, now - lease.granted_ms)))
end

-- Starts the rate anew, where concurrency turns out to be the limit.
function forget_rate(row, limits)
  row.requests_age_ms, row.shut = '', ''
  if limits.requests_per_minute or known(row.requests_reported) then row.requests_est = '' end
end

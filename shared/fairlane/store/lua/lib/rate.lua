-- What an axis is believed to allow a minute, and so how fast its calls may start. Of each axis a lane keeps
--   <axis>_est, _var   the estimate and its variance (a minute, and squared), learned from refusals; before the first
--                      one, while `_age_ms` is '', it is slow start's rate
--   <axis>_age_ms      how long, since the last refusal, this rate was what held jobs back
--   <axis>_slope       the steepest it may climb, e-fold a minute, where a provider is found to mind; `_top` is
--                      kept below until `_top_until_ms`
--   <axis>_told        what the provider's headers say it allows; `_foreign` is what others take of it
-- GIVES: LEAST_PER_MINUTE MOST_PER_MINUTE known believed ramp grow_older start_faster unlearn_rate

LEAST_PER_MINUTE = 0.1
MOST_PER_MINUTE = 6e9 -- tokens: the greatest limits that are sold are some 10^8
local START_PER_MINUTE = 600
local CUT = 0.03 -- how far below its estimate a lane goes on after a refusal
local BACK_MS, BACK_CALLS, BACK_MOST_MS = 20000, 30, 360000 -- how long until it is back at it, at least so many calls
local SURE, SOONEST = 0.03, 0.15 -- an estimate less sure than that is tried sooner, at most by that factor
local UNDER_TOLD, LEAST_OF_TOLD = 0.997, 0.05
local LEAST_OF_STATED = 0.01 -- an operator's number is not that wrong, so refusals beyond have another cause
local STEEPEST = 2.5 -- e-fold a minute: twice as fast in 17 s
local BOUNDED = 1.05
local RAMP_MS, RAMP_FROM = 10000, 0.1

function known(value)
  return value and value ~= '' and value or nil
end

-- How long after a refusal a saturated lane is back at its estimate: CUBIC's K (RFC 9438, section 4.2).
local function back_ms(row, axis)
  local est = row[axis .. '_est']
  local doubt = math.sqrt(row[axis .. '_var'] or 0) / est
  local ms = BACK_MS * math.max(SOONEST, math.min(1, SURE / math.max(doubt, 1e-9)))
  return axis == 'requests' and math.max(ms, math.min(BACK_MOST_MS, BACK_CALLS * 60000 / est)) or ms
end

-- The rate that an estimate leads to, `age` after its last refusal; nil without one. It follows CUBIC's curve: from
-- just below the estimate fast back to it, a long while near it, then ever faster beyond.
local function curve(row, axis)
  local est, age, slope = known(row[axis .. '_est']), known(row[axis .. '_age_ms']), known(row[axis .. '_slope'])
  if not est or not age then return est end
  local back = back_ms(row, axis)
  local rate = est * (1 + CUT * ((age - back) / back) ^ 3)
  return math.min(rate, est * math.exp(math.min(slope or STEEPEST, STEEPEST) * age / 60000))
end

-- What was learned, a minute; nil where nothing limits the axis.
function believed(row, axis, stated)
  local told, rate = known(row[axis .. '_told']), curve(row, axis)
  if not rate and axis == 'requests' and not told and not stated then rate = START_PER_MINUTE end
  if rate and (row[axis .. '_top_until_ms'] or 0) > (row.asked_ms or 0) then
    rate = math.min(rate, row[axis .. '_top'])
  end
  if told then
    local left = math.max(told * LEAST_OF_TOLD, told * UNDER_TOLD - (row[axis .. '_foreign'] or 0))
    rate = math.min(rate or left, left)
  end
  return rate and math.max(LEAST_PER_MINUTE, LEAST_OF_STATED * (stated or 0), math.min(MOST_PER_MINUTE, rate))
end

-- The share of its rate that a lane uses just after its circuit closed or its Redis came back.
function ramp(row, now)
  local since = now - (row.ramp_ms or -RAMP_MS)
  return since >= RAMP_MS and 1 or math.max(RAMP_FROM, since / RAMP_MS)
end

-- Lets the axis that held jobs back since the last question grow older, unless something else than its estimate is
-- what bounds it to `allowed`. Beyond its estimate a rate only grows once a call started after the last refusal has
-- succeeded; and none grows while a refusal is not got over.
function grow_older(row, axis, allowed, elapsed_ms)
  local age = known(row[axis .. '_age_ms'])
  if not age or known(row.shut) or curve(row, axis) > BOUNDED * allowed then return end
  local older = age + elapsed_ms
  if row.proved ~= 1 then older = math.max(age, math.min(older, back_ms(row, axis))) end
  row[axis .. '_age_ms'] = older
end

-- Slow start: one more call in flight for each success (TCP's, RFC 5681), while the rate is what holds jobs back.
function start_faster(row, limits, lease, now)
  if limits.requests_per_minute or known(row.requests_told) or known(row.requests_age_ms) then return end
  if known(row.shut) or row.stop ~= 'requests' then return end
  local rate = known(row.requests_est) or START_PER_MINUTE
  row.requests_est = math.min(MOST_PER_MINUTE, rate + math.min(rate / 2, 60000 / math.max(1, now - lease.granted_ms)))
end

-- Where places are what is limited, the rate starts anew.
function unlearn_rate(row, limits)
  row.requests_age_ms, row.shut = '', ''
  if limits.requests_per_minute or known(row.requests_told) then row.requests_est = '' end
end

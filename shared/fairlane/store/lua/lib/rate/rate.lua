-- The rate that an axis is believed to allow, a minute: how fast its calls may start. It follows from the estimate
-- (lib/rate/curve.lua) and from what is reported. Each axis of a lane keeps
--   <axis>_reported    the limit in the provider's headers; `_foreign` is what others were seen to take of it at
--                      `_foreign_ms`, `_free` what was left of it when last reported
--   <axis>_top         the rate stays below it until `_top_until_ms` (lib/rate/probe_slope.lua)
-- GIVES: others_rate learned_rate rate_of_use ramp
-- USES: lane/counts lane/state rate/constants rate/curve rate/lift reported/others_constants

-- The fields of each axis, by which most axes prove to have no limit: their names take longer to make than to look up.
local ESTIMATED = { requests = 'requests_est', tokens = 'tokens_est', input = 'input_est', output = 'output_est' }
local REPORTED = {
  requests = 'requests_reported', tokens = 'tokens_reported', input = 'input_reported', output = 'output_reported',
}

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

-- Whether a report may be outdated: 429s have shown what the axis allows, and no answer has renewed the report since.
-- Some providers report their limits with 429s alone, and a lane that stays below the report would never hear of more.
local function is_outdated(row, axis)
  return known(row[axis .. '_age_ms']) ~= nil
    and (row.asked_ms or 0) - (row[axis .. '_reported_ms'] or 0) > UNRENEWED_MS
    and (row.granted or 0) - (row[axis .. '_reported_n'] or 0) > UNRENEWED_CALLS
end

-- What a limit on growth allows of requests by now (lib/refusal/growth.lua), a minute; nil where none was met.
local function grown_rate(row)
  local rate = known(row.growth_rate)
  local e_folds = rate and row.growth_slope * math.max(0, (row.asked_ms or 0) - row.growth_ms) / 60000
  return rate and math.min(MOST_PER_MINUTE, rate * math.exp(math.min(100, e_folds)))
end

-- The learned rate, a minute; nil where nothing limits the axis. A limit on growth takes the place of slow start.
function learned_rate(row, axis, configured)
  local reported, est = known(row[REPORTED[axis]]), known(row[ESTIMATED[axis]])
  if not est and not reported and axis ~= 'requests' then return nil end
  local rate = est and curve(row, axis)
  if not rate and axis == 'requests' and not reported and not configured then rate = START_PER_MINUTE end
  if rate and (row[axis .. '_top_until_ms'] or 0) > (row.asked_ms or 0) then
    rate = math.min(rate, row[axis .. '_top'])
  end
  if axis == 'requests' and known(row.check_rate) then rate = math.min(rate or math.huge, row.check_rate) end
  local grown = axis == 'requests' and grown_rate(row)
  if grown then rate = math.min(known(row.requests_age_ms) and rate or math.huge, grown) end
  if reported and not is_outdated(row, axis) then
    local left = lifted(row, axis, left_of(row, axis, reported))
    rate = math.min(rate or left, left)
  end
  return rate and math.max(LEAST_PER_MINUTE, LEAST_OF_CONFIGURED * (configured or 0), math.min(MOST_PER_MINUTE, rate))
end

-- How fast an axis without any limit was used, a minute.
function rate_of_use(row, axis)
  local calls = math.max(1, row.granted or 1)
  local span_ms = math.max(1000, (row.asked_ms or 0) - (row.known_ms or 0))
  return (learned_rate(row, 'requests') or calls * 60000 / span_ms) * one_call(row, axis)
end

-- The share of its rate that a lane uses just after its circuit closed or its Redis came back.
function ramp(row, now)
  local since = now - (row.ramp_ms or -RAMP_MS)
  return since >= RAMP_MS and 1 or math.max(RAMP_FROM, since / RAMP_MS)
end

-- The learned rate of an axis, a minute: how fast its calls may start. It follows from the estimate
-- (lib/rate/curve.lua) and from reported limits. Each axis of a lane keeps
--   <axis>_reported    the limit in the provider's headers
--   <axis>_top         the rate stays below it until `_top_until_ms` (lib/rate/probe_slope.lua)
-- GIVES: learned_rate rate_of_use ramp
-- USES: lane/counts lane/state rate/constants rate/curve rate/lift reported/free reported/others_constants

-- What is left of a reported limit: what the last report shows, less the lane's calls since.
local function free_of(row, axis)
  return math.max(0, (row[axis .. '_free_to'] or 0) - admitted(row, axis))
end

-- What a reported limit leaves to the lane, a minute: what others do not take, at least a part of what the report shows
-- as left.
local function left_of(row, axis, reported)
  local others, most = others_rate(row, axis), reported * UNDER_REPORTED
  if others == 0 then return most end
  return math.min(most, math.max(LEAST_OF_REPORTED * reported, most - others, FREE_OF_LEFT * free_of(row, axis)))
end

-- What the lane spends of a saved bucket besides the rate, a minute: as much as the rate, and in the end ever less.
local function saved_of(row, axis, reported)
  local kept = one_call(row, axis) + reported * SPREAD_MS / 60000
  return math.min(reported, math.max(0, spare_shown(row, axis) - kept) * 60000 / SPEND_MS)
end

-- Whether a report may be outdated: 429s have shown what the axis allows, and no answer has renewed the report since.
-- Some providers report their limits only with 429s: a lane that stays below such a report would never get another.
local function is_outdated(row, axis)
  return known(row[axis .. '_age_ms']) ~= nil
    and (row.asked_ms or 0) - (row[axis .. '_reported_ms'] or 0) > UNRENEWED_MS
    and (row.granted or 0) - (row[axis .. '_reported_n'] or 0) > UNRENEWED_CALLS
end

-- The requests a minute that a limit on growth allows by now (lib/refusal/growth.lua); nil if none was met.
local function grown_rate(row)
  local rate = known(row.growth_rate)
  local e_folds = rate and row.growth_slope * math.max(0, (row.asked_ms or 0) - row.growth_ms) / 60000
  return rate and math.min(MOST_PER_MINUTE, rate * math.exp(math.min(100, e_folds)))
end

-- The learned rate, a minute; nil if nothing limits the axis. A limit on growth takes the place of slow start.
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
    rate = math.min(rate or math.huge, left_of(row, axis, reported))
    rate = lifted(row, axis, rate + (configured and 0 or saved_of(row, axis, reported)))
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

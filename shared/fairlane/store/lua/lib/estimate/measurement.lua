-- Measures a limit by the calls between two openings of a lane, and its variance (lib/estimate/limit_estimator.lua).
--   <axis>_idle_ms   for how many ms since the last opening the axis did not limit jobs, except in trials
--   <axis>_wait_ms   for how many ms the provider had asked to wait before that opening
-- GIVES: has_risen measure
-- USES: lane/counts lane/state rate/constants

-- By how many requests or tokens a count may be wrong: one call at each end, and calls that overtook each other.
local function count_error(row, axis)
  local est = row[axis .. '_est']
  local saved_ms = row[axis .. '_saved'] == 1 and SAVED_MS or 0
  return one_call(row, axis) + est / 60000 * (0.5 * (row.refusal_ms or 100) + saved_ms)
end

-- Whether the limit has risen: more went through since the last opening than the estimate, and what the provider may
-- have saved in `saved_ms` before it, explain. At the 429 before the opening, nothing was saved.
function has_risen(row, axis, count, saved_ms, now)
  local est, opened_ms = known(row[axis .. '_est']), row[axis .. '_open_ms']
  if not est or not opened_ms or not known(row[axis .. '_age_ms']) then return false end
  local had, fits = started_for(row, axis, count - row[axis .. '_open']), est / 60000 * (now - opened_ms + saved_ms)
  return had > fits + PROVED * count_error(row, axis)
end

-- Returns a measured rate a minute, its variance, and the least that the limit can be. The count is exact, except for
-- its blur and the uncertain time of the opening. While the lane was blocked or on trial, a deep bucket saved, and a
-- shallow one was full. So the limit lies between the count over the whole span and the count over the time that the
-- lane ran. It also lies below the rate that met the 429. A lane that climbed to that rate asked for less before: then
-- only that rate bounds the limit.
function measure(row, axis, count, span_ms, unsure_ms, long)
  local est = row[axis .. '_est']
  local waited_ms = (row.idle_then or 0) + (known(row.again_ms) and row.again_ms - row.last_ms or 0)
  local ran_ms = math.max(1, span_ms - waited_ms)
  local one = one_call(row, axis)
  local low, high = count / span_ms * 60000, math.min(row.pace_then, (count + one) / ran_ms * 60000)
  if long or count < ENOUGH_CALLS * one then
    high = BELOW_REFUSED * high
  elseif row.pace_then > NEW_GROUND * row.est_then then
    high = BELOW_REFUSED * row.pace_then
  end
  high = math.max(low, high, LEAST_PER_MINUTE * one)
  local off = (count_error(row, axis) + est / 60000 * unsure_ms) / span_ms * 60000
  return math.sqrt(math.max(low, LEAST_PER_MINUTE * one) * high), off ^ 2 + ((high - low) / 4) ^ 2, low
end

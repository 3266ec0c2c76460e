-- Estimates from refusals. From one opening of a lane (the end of its refusals) to the next the provider has let
-- through exactly what it allows, whatever the shape of its limit: a bucket was empty, and a window new, at both.
-- So what was admitted in between, over the time in between, measures the limit; a Kalman filter weighs it.
--   shut, first_ms, first, last_ms, last, again_ms   the refusals not yet got over: their axis, when the first and the
--            last refused call started and what had been admitted by then, and when the provider said to come back
--   <axis>_open_ms, _open                            the last opening, and what had been admitted by then
-- GIVES: KEPT_OF_NEW STARTED_WITH admitted admitted_by reopen settle learn_opening rate_of_use

local DRIFT = 0.002 -- how far a limit may wander a second, as a share of it
local SURPRISE = 3 -- standard deviations beyond which a limit has moved
KEPT_OF_NEW = 0.9
local NEW_GROUND = 1.15 -- refused that far above the estimate: the limit is near where it was met
STARTED_WITH = 0.5 -- of the rate that slow start had reached, as TCP does
local SAVED_MS = 1000 -- what a lane that was not used to the full may have saved
local SHAPE_MS = 2500 -- refusals that last longer than a bucket needs for a few calls are a window's

-- What a lane has admitted so far on an axis: refused calls come back at once and are not in it.
function admitted(row, axis)
  if axis == 'requests' then return (row.granted or 0) - (row.seen_limited or 0) end
  return amount_on(axis, { input = row.spent_input or 0, output = row.spent_output or 0 })
end

-- The same just when a call was granted.
function admitted_by(row, axis, lease)
  if axis == 'requests' then return lease.n - (row.seen_limited or 0) end
  return amount_on(axis, lease.spent) - amount_on(axis, lease.charged)
end

function reopen(row, axis, at_ms, count)
  row[axis .. '_open_ms'], row[axis .. '_open'] = at_ms, count
end

-- A measure and its variance, a minute: counting is exact but for one call at each end, those that overtook each other
-- on the way, and how well the opening is known.
local function measure(row, axis, count, span_ms, unsure_ms)
  local est = row[axis .. '_est']
  local one = axis == 'requests' and 1 or est / math.max(1, known(row.requests_est) or est)
  if row[axis .. '_saved'] == 1 then unsure_ms = unsure_ms + SAVED_MS end
  local off = one + est / 60000 * (0.5 * row.refusal_ms + unsure_ms)
  return count / span_ms * 60000, (off / span_ms * 60000) ^ 2
end

function settle(row, axis, est, var, now)
  row[axis .. '_est'] = math.max(LEAST_PER_MINUTE, math.min(MOST_PER_MINUTE, est))
  row[axis .. '_var'] = var
  row[axis .. '_est_ms'] = now
end

-- The filter: a measurement meets the estimate, whose variance is `var` by now. Returns whether it told enough to begin anew from.
local function filter(row, axis, seen, noise, var, lasted, now)
  local est = row[axis .. '_est']
  row[axis .. '_var'] = var
  if row.novice == 1 and lasted < 1000 then
    settle(row, axis, math.max(seen, est), (0.5 * est) ^ 2, now)
  elseif row.pace_then > NEW_GROUND * est and lasted < 1000 then
    climbed(row, axis)
    local found = math.max(seen, KEPT_OF_NEW * row.pace_then)
    settle(row, axis, found, (0.1 * found) ^ 2, now)
  else
    local off = seen - est
    if math.abs(off) > SURPRISE * math.sqrt(var + noise) then var = off * off end
    row[axis .. '_var'] = var
    if noise > 4 * var then return false end
    local gain = var / (var + noise)
    settle(row, axis, est + gain * off, var * (1 - gain), now)
    judge_climb(row, axis, now)
  end
  return true
end

-- What was admitted from the last opening to this one, `count` in `span_ms`. Returns whether that told enough.
local function learn_count(row, axis, count, span_ms, unsure_ms, lasted, now)
  if span_ms < 50 then return false end
  local est = row[axis .. '_est']
  local var = (row[axis .. '_var'] or 0) + (DRIFT * est) ^ 2 * span_ms / 1000
  local seen, noise = measure(row, axis, count, span_ms, unsure_ms)
  -- Next to nothing went through: they were not over.
  local hardly = count < 3 and seen < est / 3 and span_ms < 9 * 60000 / est and var < 0.2 * est * est
  if hardly then return false end
  local sliding = over_a_minute(row, axis, now)
  if sliding and sliding > seen then seen, noise = sliding, 1 end
  return filter(row, axis, seen, noise, var, lasted, now)
end

-- Takes the refusals that began at `first_ms` as over: what do they say of the limit?
function learn_opening(row, now)
  local axis, again = row.shut, known(row.again_ms)
  row.shut = ''
  local low, high = again or row.last_ms, again or math.max(known(row.after_ms) or now, row.last_ms)
  local lasted, est = low - row.first_ms, row[axis .. '_est']
  if high - row.first_ms > math.max(SHAPE_MS, 10 * 60000 / est) then note_boundary(row, axis, low, high, now) end

  local opened_ms, in_window = lasted < 1000 and low or (low + high) / 2, known(row.in_window)
  if in_window then
    settle(row, axis, in_window * 60000 / WINDOW_MS, (0.02 * est) ^ 2, now)
    opened_ms = high
  else
    local count, span_ms = row.first - (row[axis .. '_open'] or 0), opened_ms - (row[axis .. '_open_ms'] or now)
    local unsure_ms = lasted > 1000 and (high - low) / 2 or 0
    if not learn_count(row, axis, count, span_ms, unsure_ms, lasted, now) then return end
  end
  row.novice = 0
  reopen(row, axis, opened_ms, row.last)
  row[axis .. '_age_ms'], row[axis .. '_saved'] = 0, 0
end

-- What an axis that nothing limits has been used at, a minute: as many tokens a call as so far.
function rate_of_use(row, axis)
  local calls = math.max(1, row.granted or 1)
  local rate = believed(row, 'requests') or calls * 60000 / math.max(1000, (row.asked_ms or 0) - (row.known_ms or 0))
  return axis == 'requests' and rate or rate * math.max(1, admitted(row, axis)) / calls
end

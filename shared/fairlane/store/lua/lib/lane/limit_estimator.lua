-- Estimates a limit from 429s. From one opening of a lane (the end of its 429s) to the next, the provider has let
-- through exactly what it allows, whatever the shape of its limit: at both openings its bucket was empty, or its
-- window new. So the count admitted in between, over the time in between, measures the limit. A Kalman filter for one
-- number weighs the measurements.
--   shut, first_ms, first, last_ms, last, again_ms   the 429s that the lane still meets: their axis, when the first
--            and the last rejected call started, the counts at those moments, when the provider said to come back
--   <axis>_open_ms, _open                            the last opening, and the count at it
--   <axis>_steady                                    1 once an estimate was sure
-- GIVES: has_risen set_estimate learn_opening
-- USES: lane/constants lane/counts lane/curve lane/measurement lane/probe_slope lane/refusal_budget lane/state
--       lane/strays lane/window_detector

-- Whether the lane has had more since its last opening than its estimate lets through. At the opening nothing was
-- saved, so the limit has risen.
function has_risen(row, axis, count, now)
  local est, opened_ms = known(row[axis .. '_est']), row[axis .. '_open_ms']
  if not est or not opened_ms or not known(row[axis .. '_age_ms']) then return false end
  return count - row[axis .. '_open'] > est / 60000 * (now - opened_ms) + PROVED * blur_of(row, axis)
end

function set_estimate(row, axis, est, var, now)
  row[axis .. '_est'] = math.max(LEAST_PER_MINUTE, math.min(MOST_PER_MINUTE, est))
  row[axis .. '_var'] = var
  row[axis .. '_est_ms'] = now
end

-- Updates the estimate after a 429 on new ground, which lies well above it. Where the measurement is greater too, the
-- limit rose at some time in the span that was measured, and lies between the measured rate and the rejected one.
-- Where it is not, a slow probe was rejected by a provider that saves nothing: the limit is just below the probe.
local function estimate_on_new_ground(row, axis, seen, noise, risen, now)
  local most = math.max(seen, row.pace_then)
  local est = risen and math.sqrt(seen * most) or math.max(seen, KEPT_OF_PROBE * most)
  note_probe(row, axis)
  probe_often(row, axis)
  set_estimate(row, axis, est, risen and ((most - seen) / 4) ^ 2 + noise or (0.1 * est) ^ 2, now)
end

-- The filter: updates the estimate, whose variance has grown to `var` by now, by a measurement. Returns whether the
-- measurement was precise enough for a new one to begin here.
local function filter(row, axis, seen, noise, var, long, now)
  local est = row[axis .. '_est']
  local off = seen - est
  local moved = math.abs(off) > SURPRISE * math.sqrt(var + noise)
  local risen = off > 0 and (moved or is_unsure(row, axis))
  local new_ground = row.pace_then > NEW_GROUND * row.est_then and (risen or row[axis .. '_slow'] == 1)
  row[axis .. '_var'] = var
  if row.novice == 1 and not long then
    set_estimate(row, axis, math.max(seen, est), (0.5 * est) ^ 2, now)
  elseif new_ground and not long then
    estimate_on_new_ground(row, axis, seen, noise, risen, now)
  else
    if moved then var = off * off end
    row[axis .. '_var'] = var
    if noise > 4 * var then return false end
    if moved then probe_often(row, axis) elseif var < (SURE * est) ^ 2 then put_probe_off(row, axis) end
    local gain = var / (var + noise)
    set_estimate(row, axis, est + gain * off, var * (1 - gain), now)
    local from = strayed_from(row, axis, est)
    if from then set_estimate(row, axis, from, (STRAY_DOUBT * from) ^ 2, now) end
    if row[axis .. '_var'] < (SURE * row[axis .. '_est']) ^ 2 then row[axis .. '_steady'] = 1 end
    adjust_slope(row, axis, now)
  end
  return true
end

-- Learns from `count` admitted in `span_ms` between two openings. Returns whether that was precise enough.
local function learn_count(row, axis, count, span_ms, unsure_ms, long, now)
  if span_ms < 50 then return false end
  local est = row[axis .. '_est']
  local var = (row[axis .. '_var'] or 0) + (WANDER * est) ^ 2 * span_ms / 1000
  local seen, noise = measure(row, axis, count, span_ms, unsure_ms)
  -- Next to nothing went through: the 429s had not ended.
  local hardly = count < 3 and seen < est / 3 and span_ms < 9 * 60000 / est and var < 0.2 * est * est
  if hardly then return false end
  local sliding = sliding_count(row, axis, now)
  if sliding and sliding > seen then seen, noise = sliding, 1 end
  return filter(row, axis, seen, noise, var, long, now)
end

-- Takes the 429s that began at `first_ms` as ended, learns the limit from them, and plans the next probe.
function learn_opening(row, limits, now)
  local axis, again = row.shut, known(row.again_ms)
  row.shut = ''
  local low, high = again or row.last_ms, again or math.max(known(row.after_ms) or now, row.last_ms)
  local lasted, est = low - row.first_ms, row[axis .. '_est']
  local shut_long = high - row.first_ms > math.max(LONG_REFUSAL_MS, 10 * 60000 / est)
  if shut_long then note_boundary(row, axis, low, high, now) end
  local long = shut_long or row.last_ms - row.first_ms >= 1000

  local opened_ms, in_window = lasted < 1000 and low or (low + high) / 2, known(row.in_window)
  if in_window then
    set_estimate(row, axis, in_window * 60000 / WINDOW_MS, (0.02 * est) ^ 2, now)
    opened_ms = high
  else
    local count, span_ms = row.first - (row[axis .. '_open'] or 0), opened_ms - (row[axis .. '_open_ms'] or now)
    local unsure_ms = lasted > 1000 and (high - low) / 2 or 0
    if not learn_count(row, axis, count, span_ms, unsure_ms, long, now) then return end
  end
  plan_probe(row, axis, limits.refusal_budget, now)
  row.novice = 0
  mark_opening(row, axis, opened_ms, row.last)
  row[axis .. '_age_ms'], row[axis .. '_saved'] = 0, 0
end

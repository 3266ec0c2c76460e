-- Estimates a limit from 429s. An opening of a lane is the end of its 429s. Between two openings, the provider lets
-- through exactly what it allows, whatever the shape of its limit: at both, its bucket was empty, or its window new. So
-- the calls admitted in between, divided by the time, measure the limit. A filter weighs the measurements
-- (lib/estimate/estimate_filter.lua).
--   shut, first_ms, first, last_ms, last, again_ms   the 429s that the lane still meets: their axis; when the first
--            and the last rejected call started, and the counts then; when the provider said to come back
--   first_refused_n, refused_n                       the permits of those calls
--   <axis>_open_ms, _open, _open_n                   the last opening, the count at it, and the last call in that count
-- GIVES: learn_opening
-- USES: estimate/estimate_filter estimate/measurement lane/counts lane/state rate/constants rate/rate
--       rate/refusal_budget refusal/provisional reported/window_detector

-- Learns from `count` admitted in `span_ms` between two openings. Returns whether that was precise enough.
local function learn_count(row, axis, count, span_ms, unsure_ms, long, now)
  if span_ms < 50 then return false end
  local est = row[axis .. '_est']
  local var = (row[axis .. '_var'] or 0) + (WANDER * est) ^ 2 * span_ms / 1000
  local seen, noise, least = measure(row, axis, count, span_ms, unsure_ms, long)
  -- Next to nothing went through: the 429s had not ended.
  local one = one_call(row, axis)
  local brief = span_ms < math.max(SHUT_STILL_MS, 9 * 60000 * one / est)
  local hardly = brief and count < 3 * one and seen < est / 3 and var < 0.2 * est * est
  if hardly then return false end
  local sliding = sliding_count(row, axis, now)
  if sliding and sliding > seen then seen, noise, least = sliding, 1, sliding end
  return filter_estimate(row, axis, { rate = seen, noise = noise, least = least }, var, long, now)
end

-- Whether the lane came back at `high` much later than it could have, as jobs were scarce or Redis stood still. Then
-- nobody knows when the provider let calls through again. Twice the time between calls (on a ramp longer) is normal.
local function returned_late(row, axis, high, now)
  local between_ms = 2 * 60000 / math.max(LEAST_PER_MINUTE, calls_a_minute(row, axis)) / ramp(row, now)
  return high - math.max(row.last_ms, known(row.blocked_ms) or 0) > SLACK_MS + between_ms
end

-- Takes the 429s that began at `first_ms` as ended, learns the limit from them, and plans the next probe.
function learn_opening(row, limits, now)
  keep_before_opening(row)
  local axis, again = row.shut, known(row.again_ms)
  row.shut = ''
  local low, high = again or row.last_ms, again or math.max(known(row.after_ms) or now, row.last_ms)
  local lasted, est, call_ms = low - row.first_ms, row[axis .. '_est'], 60000 / calls_a_minute(row, axis)
  local late = not again and returned_late(row, axis, high, now)
  local shut_long = (late and low or high) - row.first_ms > math.max(LONG_REFUSAL_MS, 10 * call_ms)
  if shut_long and not late then note_boundary(row, axis, low, high, now) end
  local long = shut_long or row.last_ms - row.first_ms >= 1000

  local shown = row.shown_then == 1 -- headers report the limit
  local opened_ms, in_window = lasted < 1000 and low or (low + high) / 2, known(row.in_window)
  if in_window then
    set_estimate(row, axis, in_window * 60000 / WINDOW_MS, (0.02 * est) ^ 2, now)
    opened_ms = high
  else
    if not shown and not row[axis .. '_open_ms'] then
      return mark_opening(row, axis, opened_ms, row.last, row.refused_n - 1)
    end
    local count = started_for(row, axis, row.first - (row[axis .. '_open'] or 0))
    local span_ms = opened_ms - (row[axis .. '_open_ms'] or now)
    local unsure_ms = lasted > 1000 and (high - low) / 2 or 0
    if not shown and not learn_count(row, axis, count, span_ms, unsure_ms, long, now) then return end
  end
  plan_probe(row, axis, limits.refusal_budget, shown and low - row.first_ms or 0, now)
  row.novice = 0
  mark_opening(row, axis, opened_ms, row.last, row.refused_n - 1)
  row[axis .. '_wait_ms'] = again and math.max(0, again - row.last_ms) or 0
  row[axis .. '_age_ms'], row[axis .. '_saved'] = 0, 0
  local awaited_ms = LONG_REFUSAL_MS + 4 * (row.refusal_ms or 100) + 2 * call_ms
  if late or now - high > awaited_ms then
    mark_opening(row, axis, now, admitted(row, axis), row.granted) -- the time in between measures nothing
    row[axis .. '_saved'] = 1
  end
end

-- Learns from a 429. Calls that were granted before the lane saw the last 429 say nothing new when they are rejected
-- too: one cut per epoch, and `sign` is the number of the last call granted in the epoch before. If the first call
-- after it is rejected as well, the lane is still blocked; if a later one is, the lane had opened in between.
-- GIVES: learn_refusal
-- USES: buckets/buckets lane/counts lane/state rate/constants rate/curve rate/estimate_filter rate/limit_estimator
--       rate/measurement rate/refusal_budget rate/reopening reported/window_detector tokens/amounts

-- How long a lane waits at least that meets many 429s in a row beside the calls that went through before: what the rate
-- takes for a call, once more each time, and a part of the time without an admitted call. The limit may be as slow, and
-- count what it refuses. Few 429s beside many calls are worth it: they show when a window ends.
local function patience_ms(row, axis, now)
  local calls = calls_a_minute(row, axis)
  local before = (row.first - (row[axis .. '_open'] or 0)) * calls / row[axis .. '_est']
  if row.refusals <= math.max(PROBES, PROBES_OF_CALLS * before) then return 0 end
  return math.min(SHUT_MOST_MS, math.max((row.refusals - 1) * 60000 / calls, (now - row.first_ms) / SHUT_PART))
end

-- When a rejected lane tries again: when the provider says, at a known boundary, or after a pause that doubles. What a
-- provider says doubles too while it proves to be too short.
local function try_again_ms(row, axis, retry_after_ms, now)
  if retry_after_ms > 0 then
    local longest = math.max(retry_after_ms, RARELY_MS)
    local again = now + math.min(longest, retry_after_ms * 2 ^ math.min(row.refusals - 1, 16))
    row.again_ms = again
    return again
  end
  row.again_ms = ''
  local most = math.min(RARELY_MS, math.max(BACK_OFF_MOST_MS, 30000 / row[axis .. '_est']))
  local pause_ms = math.min(most, BACK_OFF_MS * 2 ^ math.min(row.refusals - 1, 16))
  local again = now + math.max(pause_ms, patience_ms(row, axis, now))
  if has_window(row, axis) and row.refusals == 1 then
    again = math.max(again, row[axis .. '_edge_ms'] + EDGE_MARGIN_MS)
  end
  return again
end

-- Notes the first 429 of an epoch: its axis, the rate at that moment and the estimate that it followed. Slow start
-- overshoots by up to twice; a limit that was configured or reported does not.
local function begin_epoch(row, axis, rate, est_then, starting, lease, now)
  row.shut, row.first_ms, row.refusals, row.crowd = axis, lease.granted_ms, 1, lease.inflight
  row.first, row.pace_then, row.est_then, row.epoch = row.last, rate, est_then, (row.epoch or 0) + 1
  note_window_use(row, axis, now)
  if not known(row[axis .. '_age_ms']) then
    local start = rate * (starting and STARTED_WITH or KEPT_OF_NEW)
    set_estimate(row, axis, start, start * start, now)
    row.novice = 1
  end
  local climbed = (row[axis .. '_climb_ms'] or 0) > 0 and row[axis .. '_window'] ~= 1
  local saved_ms = SAVED_OF_WAIT * (row[axis .. '_wait_ms'] or 0)
  row.risen_then = climbed and has_risen(row, axis, row.first, saved_ms, row.first_ms) and 1 or 0
  row.stray = below_estimate(row, axis) and 1 or 0
  row.age_then, row.idle_then = known(row[axis .. '_age_ms']) or 0, row[axis .. '_idle_ms'] or 0
  row[axis .. '_age_ms'], row[axis .. '_climb_ms'], row.proved = 0, 0, 0
end

-- A 429 that is reported after that of a call which started later: the counts at the later one included this call.
local function uncount(row, lease)
  local axis = row.refused_on
  if not axis or lease.n >= row.refused_n then return end
  local one = axis == 'requests' and 1 or amount_on(axis, lease.charged)
  if known(row.shut) then
    row.first, row.last = row.first - one, row.last - one
  else
    row[axis .. '_open'] = (row[axis .. '_open'] or 0) - one
  end
end

-- Learns from a 429 on `axis`, whose rate was `rate` a minute, in slow start if `starting`, and whose bucket held
-- `level`. Returns whether it began an epoch.
function learn_refusal(row, limits, axis, rate, starting, level, lease, retry_after_ms, now)
  local took_ms = math.min(LONG_REFUSAL_MS, now - lease.granted_ms) -- a report may have waited for Redis
  row.refusal_ms = 0.8 * (row.refusal_ms or 100) + 0.2 * took_ms
  if lease.n <= (row.sign or 0) then
    count_cost(row, axis, false)
    uncount(row, lease)
    return false
  end
  local est_then = known(row[axis .. '_est']) or rate
  local still = known(row.shut) and lease.n == row.sign + 1
  if still then axis = row.shut elseif known(row.shut) then learn_opening(row, limits, now) end
  row.last_ms, row.last = lease.granted_ms, admitted_by(row, axis, lease)
  if still then
    row.refusals, row.crowd = row.refusals + 1, lease.inflight
    count_cost(row, axis, false)
    miss_boundary(row, axis, lease.granted_ms)
  else
    count_cost(row, axis, true)
    begin_epoch(row, axis, rate, est_then, starting, lease, now)
  end
  row.sign, row.after_ms, row.refused_n, row.refused_on = row.granted, '', lease.n, axis
  local again = try_again_ms(row, axis, retry_after_ms, now)
  row.blocked_ms = math.max(row.blocked_ms or 0, again)
  lower_level(row, { axis = axis, level = level }, 0, earns_from(row, axis, now))
  return not still
end

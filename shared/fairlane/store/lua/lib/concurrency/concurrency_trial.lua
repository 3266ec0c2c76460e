-- The trial of a concurrency limit: a window, and no rate limit, until 429s narrow the window or refute it. In a lane's
-- hash:
--   unprovoked   429s at a window that was not widened
--   given_up, given_up_usual_ms   the estimate of the rate before the trial, and the usual time of a call then
-- GIVES: try_concurrency met_the_window count_beyond concurrency_refused refutes_concurrency end_poor_trial
-- USES: concurrency/concurrency_floor concurrency/concurrency_limit concurrency/detector_constants
--       estimate/estimate_filter lane/state

-- Begins a trial, with one call fewer at once than the floor.
function try_concurrency(row)
  narrow_window(row, row.floor - 1, 'refusals')
  row.unprovoked, row.fitted, row.given_up = 0, '', known(row.requests_est) or ''
  row.given_up_usual_ms = row.usual_ms or ''
  return true
end

local function concurrency_limited(row)
  return known(row.window) ~= nil and row.window_by == 'refusals'
end

-- Whether too many concurrent calls may be the cause of a 429: such a limit admits a call that is alone.
function met_the_window(row, lease)
  return concurrency_limited(row) and (lease.inflight > 1 or (row.inflight or 0) > 1)
end

-- Counts a call that went through with more in flight than the window held before it was widened, and than calls on
-- their way explain.
function count_beyond(row, lease)
  if not concurrency_limited(row) or not known(row.fitted) then return end
  if lease.inflight > row.fitted + in_flight_error(row) - 1 then row.beyond = row.beyond + 1 end
end

-- Narrows the window after a 429 for too many concurrent calls. Calls overtake each other, so a widened window goes
-- back to its former size, at most to `named`, if the 429 names its limit. That is not treated as a reported limit,
-- which only an answer could raise: it is tested at growing intervals. Returns whether the 429 began an epoch.
function concurrency_refused(row, lease, named)
  if lease.n <= (row.sign or 0) then return false end
  row.sign = row.granted
  if lease.inflight < 2 then return false end
  local fits, base = lease.inflight - 1, known(row.window_base)
  row.unprovoked = base and 0 or (row.unprovoked or 0) + 1
  if base and lease.inflight >= base then fits = math.max(fits, base) end
  local again = named and named == row.at_once_named
  row.widen_ms = again and math.min(2 * math.max(row.widen_ms, WIDEN_NAMED_MS), WIDEN_LATE_MS) or WIDEN_NAMED_MS
  row.at_once_named = named or ''
  fits = math.min(fits, named or fits)
  narrow_window(row, math.min(known(row.window) or lease.inflight, fits), 'refusals')
  return true
end

-- Ends a trial: the learned rate counts again, and the next trial needs twice the evidence.
local function end_trial(row, now)
  row.window, row.fitted, row.unprovoked, row.floors_wanted = '', '', 0, 2 * (row.floors_wanted or FLOORS)
  forget_floor(row)
  local est = known(row.given_up)
  if est then
    set_estimate(row, 'requests', est, (0.1 * est) ^ 2, now)
    row.requests_age_ms = 0
  end
end

-- Whether a 429 refutes the concurrency limit. It does well within the window, or after UNPROVOKED others at a window
-- that was not widened. It also does if it takes back a widening through which many calls went.
function refutes_concurrency(row, lease, now)
  local blur = in_flight_error(row)
  local within = lease.inflight < math.min(row.window, known(row.floor) or row.window) - blur
  local unprovoked = not known(row.window_base) and (row.unprovoked or 0) >= UNPROVOKED + math.floor(blur / 2)
  local back = known(row.fitted) and math.min(row.window, lease.inflight - 1) <= row.fitted and row.beyond >= BEYOND
  if not within and not unprovoked and not back then return false end
  end_trial(row, now)
  return true
end

-- Ends the trial of a window that serves less than the rate before it, although calls take no longer. More concurrent
-- calls went through then, so their number was not the limit.
function end_poor_trial(row, now)
  local rate, calls = known(row.given_up), (row.granted or 0) - (row.window_from or 0)
  if not concurrency_limited(row) or not rate or calls < UNDER then return end
  local usual_ms = known(row.given_up_usual_ms) or row.usual_ms or 1
  local slower = math.max(1, (row.usual_ms or usual_ms) / usual_ms)
  local expected = WORTH * rate / slower * row.window_age_ms / 60000
  if calls + row.window + math.sqrt(calls) / 2 < expected then end_trial(row, now) end
end

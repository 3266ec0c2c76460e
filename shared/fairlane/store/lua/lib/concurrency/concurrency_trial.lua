-- The trial of a concurrency limit: so many calls at once, at any rate, until 429s narrow the window or refute it. In a
-- lane's hash:
--   unprovoked   429s at a window that was not widened
--   given_up     the estimate of the rate before the trial
-- GIVES: try_concurrency concurrency_limited concurrency_refused refutes_concurrency
-- USES: concurrency/concurrency_floor concurrency/concurrency_limit concurrency/detector_constants lane/state
--       rate/estimate_filter

-- Begins a trial: so many calls at once, at any rate.
function try_concurrency(row)
  narrow_window(row, row.floor - 1, 'refusals')
  row.unprovoked, row.given_up = 0, known(row.requests_est) or ''
  return true
end

function concurrency_limited(row)
  return known(row.window) ~= nil and row.window_by == 'refusals'
end

-- A 429 because too many calls were in flight. Calls overtake each other on their way: where a widened window is
-- rejected, as many as fitted before still do. Returns whether it began an epoch.
function concurrency_refused(row, lease)
  if lease.n <= (row.sign or 0) then return false end
  row.sign = row.granted
  if lease.inflight < 2 then return false end
  local fits, base = lease.inflight - 1, known(row.window_base)
  row.unprovoked = base and 0 or (row.unprovoked or 0) + 1
  if base and lease.inflight >= base then fits = math.max(fits, base) end
  narrow_window(row, math.min(known(row.window) or lease.inflight, fits), 'refusals')
  return true
end

-- Whether a 429 refutes the concurrency limit: one well within the window, or one more than it takes to measure the
-- limit while the window was not widened. Then the learned rate counts again, and the next trial needs twice the
-- evidence.
function refutes_concurrency(row, lease, now)
  local blur = in_flight_blur(row)
  local within = lease.inflight < math.min(row.window, known(row.floor) or row.window) - blur
  local unprovoked = not known(row.window_base) and (row.unprovoked or 0) >= UNPROVOKED + math.floor(blur / 2)
  if not within and not unprovoked then return false end
  row.window, row.unprovoked, row.floors_wanted = '', 0, 2 * (row.floors_wanted or FLOORS)
  forget_floor(row)
  local est = known(row.given_up)
  if est then
    set_estimate(row, 'requests', est, (0.1 * est) ^ 2, now)
    row.requests_age_ms = 0
  end
  return true
end

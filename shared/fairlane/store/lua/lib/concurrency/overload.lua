-- The window after overloads (503, 529). Some providers answer so if too many calls are in flight, others now and then
-- to any call. In a lane's hash:
--   busy_n             the latest permit at the last overload that narrowed the window
--   busy_fits          one call fewer than were in flight then: the limit, if the next overload finds the same
--   kept_window, kept_by   the window before a series of overloads without an answer, and what had narrowed it
--   through            calls in flight that about a third of the latest answered calls met or exceeded
-- GIVES: note_through overload_narrows restore_window
-- USES: concurrency/chance concurrency/concurrency_limit concurrency/detector_constants lane/state

-- Keeps the window from before a series of overloads without an answer.
local function keep_window(row)
  if known(row.first_n) then return end
  row.kept_window, row.kept_by = row.window or '', row.window_by or ''
end

-- Restores the window from before such overloads: they were of an outage, which any number of calls meets.
function restore_window(row)
  if row.window_by ~= 'overload' or not row.kept_by then return end
  local window, by = known(row.kept_window), row.kept_by
  if window then narrow_window(row, window, by) else row.window, row.window_by = '', '' end
end

-- Notes how many calls were in flight at an answer: a quantile that follows in steps (Robbins and Monro, "A stochastic
-- approximation method", 1951).
function note_through(row, lease)
  local level = row.through or lease.inflight
  local step = math.max(LEAST_STEP, level / SAMPLES)
  row.calm = (row.calm or 0) + 1
  if lease.inflight > level then
    row.through = math.min(lease.inflight, level + (1 - MET) * step)
  else
    row.through = math.max(lease.inflight, level - MET * step)
  end
end

-- Whether the lane still serves calls: its latest answer is no older than SERVES times a call. Blocked time does not
-- count.
local function serves(row, lease, now)
  local blocked_ms = known(row.blocked_ms) or 0
  local asked_ms = math.max(row.answered_ms or 0, blocked_ms <= lease.granted_ms and blocked_ms or 0)
  return known(row.usual_ms) and now - asked_ms <= SERVES * row.usual_ms
end

-- Takes back a widening if an overload met more calls than the window held before, and more than many answered calls
-- met: the widening caused it. The next one waits for twice as long. Returns whether it did.
local function undoes_widening(row, lease)
  local base = row.window_by == 'overload' and known(row.window) and known(row.window_base)
  if not base or row.random_below == RANDOM_BELOW then return false end
  local fits = math.max(base, math.floor(row.through or 0))
  if lease.inflight <= fits then return false end
  row.busy_n, row.window_top = row.granted, fits
  row.widen_ms = math.min(WIDEN_MS, 2 * (row.widen_ms or WIDEN_SOON_MS))
  narrow_window(row, fits, 'overload')
  return true
end

-- Narrows the window after an overload of a lane that serves other calls: to one call fewer than were in flight, or to
-- half if too many calls still meet overloads after it was narrowed. So the next call finds room, and its answer shows
-- that there is no outage. If an overload measures a limit, answers widen the window up to that. Returns whether the
-- overload shows nothing about the lane: it came by chance, or from a window that was too wide.
function overload_narrows(row, lease, now)
  local many, below = too_many_overloads(row, lease), row.random_below
  keep_window(row)
  local met = math.max(lease.inflight, math.min(2, row.inflight or 0)) -- of two that start at once, either comes first
  if not serves(row, lease, now) or met < 2 or lease.n <= (row.busy_n or 0) then return false end
  if undoes_widening(row, lease) then return true end
  local again = many and row.busy_n and (row.answered_n or 0) <= row.busy_n
  local fewer, soon_ms, through = met - 1, row.widen_ms or WIDEN_SOON_MS, math.floor(row.through or 0)
  if not many and not measures_limit(row, lease, through) then return below == RANDOM_BELOW end
  local same = row.busy_fits == fewer and through <= met
  row.busy_n, row.busy_fits = row.granted, fewer
  if same then
    row.window_top, row.widen_ms = fewer, soon_ms
  elseif lease.inflight <= through then
    row.window_top = math.max(row.window_top or 0, through)
  else
    row.widen_ms = not many and known(row.window_base) and math.min(WIDEN_MS, 2 * soon_ms) or soon_ms
    if not many or not row.window_top then row.window_top = fewer end
  end
  narrow_window(row, again and math.floor(met / 2) or fewer, 'overload')
  return false
end

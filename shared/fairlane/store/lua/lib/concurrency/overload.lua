-- The window of calls in flight at once after overloads (503, 529): some providers reject so what is too much at once,
-- others reject so any call now and then. In a lane's hash:
--   busy_n             the latest permit at the last overload that narrowed the window
--   busy_fits          one fewer than were in flight then: the limit, if the next one finds the same
--   kept_window, kept_by   the window before the first overload that no answer has followed, and what had narrowed it
--   through            calls in flight that about a third of the latest answered calls met or exceeded
-- GIVES: note_through overload_narrows restore_window
-- USES: concurrency/chance concurrency/concurrency_limit concurrency/detector_constants lane/state

-- Keeps the window of before the first overload of a series that no answer interrupts.
local function keep_window(row)
  if known(row.first_n) then return end
  row.kept_window, row.kept_by = row.window or '', row.window_by or ''
end

-- Gives the window back that it had before overloads which proved an outage: any number of calls met them.
function restore_window(row)
  if row.window_by ~= 'overload' or not row.kept_by then return end
  local window, by = known(row.kept_window), row.kept_by
  if window then narrow_window(row, window, by) else row.window, row.window_by = '', '' end
end

-- Notes with how many in flight a call was answered: a quantile that follows a step at a time (Robbins and Monro, "A
-- stochastic approximation method", 1951).
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

-- Whether a lane that served calls a moment ago still does: its latest answer is no older than a call takes. While it
-- was blocked it asked for none.
local function serves(row, lease, now)
  local blocked_ms = known(row.blocked_ms) or 0
  local asked_ms = math.max(row.answered_ms or 0, blocked_ms <= lease.granted_ms and blocked_ms or 0)
  return known(row.usual_ms) and now - asked_ms <= SERVES * row.usual_ms
end

-- Takes back what the window was widened by, where an overload met more calls than it held before, and than many calls
-- that were answered: that is what rejected it. The next try waits for twice as long. Returns whether it did.
local function takes_back(row, lease)
  local base = row.window_by == 'overload' and known(row.window) and known(row.window_base)
  if not base or row.random_below == RANDOM_BELOW then return false end
  local fits = math.max(base, math.floor(row.through or 0))
  if lease.inflight <= fits then return false end
  row.busy_n, row.window_top = row.granted, fits
  row.widen_ms = math.min(WIDEN_MS, 2 * (row.widen_ms or WIDEN_SOON_MS))
  narrow_window(row, fits, 'overload')
  return true
end

-- An overload of a lane that serves other calls. The window becomes one fewer than were in flight, and half where too
-- many meet one although it was just narrowed: so the next call finds room, and its answer shows that there is no
-- outage. Where an overload measures a limit, answers widen the window up to that. Returns whether this one says
-- nothing of the lane: overloads come at random, or the window was too wide.
function overload_narrows(row, lease, now)
  local many, below = too_many_overloads(row, lease), row.random_below
  keep_window(row)
  local met = math.max(lease.inflight, math.min(2, row.inflight or 0)) -- of two that start at once, either comes first
  if not serves(row, lease, now) or met < 2 or lease.n <= (row.busy_n or 0) then return false end
  if takes_back(row, lease) then return true end
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

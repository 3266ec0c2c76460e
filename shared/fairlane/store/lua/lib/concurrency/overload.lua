-- The window of calls in flight at once after overloads (503, 529): some providers reject so what is too much at once,
-- others reject so any call now and then. In a lane's hash:
--   busy_n, calm   the latest permit at the last overload, and the answers since
--   through        calls in flight that about a third of the latest answered calls met or exceeded
-- GIVES: note_through overload_narrows
-- USES: concurrency/concurrency_limit concurrency/detector_constants lane/state

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

-- An overload of a lane that serves other calls. The window becomes one fewer than were in flight, and half where no
-- later call was answered since: so the next call finds room, and its answer shows that there is no outage. Where a
-- window full of calls had been answered before, so many are the limit. Overloads that come sooner have another cause
-- and leave the limit alone; so do those that meet no more calls than many that were answered. A single one of these
-- does not narrow the window either.
function overload_narrows(row, lease, now)
  local serves = known(row.usual_ms) and now - (row.answered_ms or 0) <= SERVES * row.usual_ms
  if not serves or lease.inflight < 2 or lease.n <= (row.busy_n or 0) then return end
  local again = row.busy_n and (row.answered_n or 0) <= row.busy_n
  local fewer, soon_ms = lease.inflight - 1, row.widen_ms or WIDEN_SOON_MS
  local calm, through = (row.calm or 0) >= CALM, math.floor(row.through or 0)
  row.calm = 0
  if calm and lease.inflight <= through then return end
  row.busy_n = row.granted
  if lease.inflight <= through then
    row.window_top = math.max(row.window_top or 0, through)
  else
    row.widen_ms = calm and known(row.window_base) and math.min(WIDEN_MS, 2 * soon_ms) or soon_ms
    if calm or not row.window_top then row.window_top = fewer end
  end
  narrow_window(row, again and math.floor(lease.inflight / 2) or fewer, 'overload')
end

-- The window of calls in flight at once after overloads (503, 529): some providers reject so what is too much at once,
-- others reject so any call now and then. In a lane's hash:
--   busy_n             the latest permit at the last overload that narrowed the window
--   through            calls in flight that about a third of the latest answered calls met or exceeded
--   calm, overload_n   the answers since the last overload, and the latest permit that met one
--   overload_odds      logarithm of the odds that half of the calls meet an overload, and not only `random_share`
--   random_share       share of calls that meet one at random
--   random_below       such overloads that met no more calls than `through`, less those that met more
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

-- Whether too many calls meet an overload for chance (Page's test: E. S. Page, "Continuous inspection schemes", 1954).
-- Two overloads are as far apart as the calls that were answered between them, or those that started: an overload may
-- come sooner than an answer. Where it is chance, the share of such calls is measured.
local function too_many(row, lease)
  local apart = math.max(row.calm or 0, lease.n - (row.overload_n or lease.n) - 1)
  local share = math.max(LEAST_RANDOM, math.min(MOST_RANDOM, row.random_share or 0))
  local before = math.max(0, (row.overload_odds or 0) - apart * math.log((1 - share) / (1 - OVERLOADED)))
  row.overload_odds = math.min(CERTAIN, before + math.log(OVERLOADED / share))
  row.calm, row.overload_n = 0, math.max(row.overload_n or 0, lease.n)
  if before > 0 and row.overload_odds >= CERTAIN then return true end
  row.random_share = (row.random_share or 0) * (1 - 1 / RANDOM_CALLS) ^ apart + 1 / RANDOM_CALLS
  return false
end

-- Whether an overload measures a limit: it met more calls than many that were answered. Each overload that met no more
-- is a reason against a limit, and outweighs one that did. Where several did not, the window is too narrow.
local function measures(row, lease, through)
  local below = row.random_below or 0
  if lease.inflight > through then
    row.random_below = math.max(0, below - 1)
    return below == 0
  end
  row.random_below = math.min(RANDOM_BELOW, below + 1)
  if below == RANDOM_BELOW and known(row.window) and row.window_by == 'overload' then
    row.window_top = math.max(row.window_top or 0, 2 * row.window)
  end
  return false
end

-- An overload of a lane that serves other calls. The window becomes one fewer than were in flight, and half where too
-- many meet one although it was just narrowed: so the next call finds room, and its answer shows that there is no
-- outage. Where an overload measures a limit, answers widen the window up to that. Returns whether overloads come at
-- random, so that this one says nothing of the lane.
function overload_narrows(row, lease, now)
  local many, below = too_many(row, lease), row.random_below
  local serves = known(row.usual_ms) and now - (row.answered_ms or 0) <= SERVES * row.usual_ms
  if not serves or lease.inflight < 2 or lease.n <= (row.busy_n or 0) then return false end
  local again = many and row.busy_n and (row.answered_n or 0) <= row.busy_n
  local fewer, soon_ms, through = lease.inflight - 1, row.widen_ms or WIDEN_SOON_MS, math.floor(row.through or 0)
  if not many and not measures(row, lease, through) then return below == RANDOM_BELOW end
  row.busy_n = row.granted
  if lease.inflight <= through then
    row.window_top = math.max(row.window_top or 0, through)
  else
    row.widen_ms = not many and known(row.window_base) and math.min(WIDEN_MS, 2 * soon_ms) or soon_ms
    if not many or not row.window_top then row.window_top = fewer end
  end
  narrow_window(row, again and math.floor(lease.inflight / 2) or fewer, 'overload')
  return false
end

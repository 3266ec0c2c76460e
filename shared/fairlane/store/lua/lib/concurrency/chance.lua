-- Whether overloads (503, 529) come by chance, or show what is too much at once. In a lane's hash:
--   calm, overload_n   the answers since the last overload, and the latest permit that met one
--   overload_odds      logarithm of the odds that half of the calls meet an overload, and not only `random_share`
--   random_share       share of calls that meet one at random
--   random_below       such overloads that met no more calls than `through` (concurrency/overload), less those that
--                      met more
-- GIVES: too_many_overloads measures_limit
-- USES: concurrency/detector_constants lane/state

-- Whether too many calls meet an overload for chance (Page's test: E. S. Page, "Continuous inspection schemes", 1954).
-- Two overloads are as far apart as the calls that were answered between them, or those that started: an overload may
-- come sooner than an answer. Where it is chance, the share of such calls is measured.
function too_many_overloads(row, lease)
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
function measures_limit(row, lease, through)
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

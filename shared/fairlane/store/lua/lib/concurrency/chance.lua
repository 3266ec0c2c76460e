-- Decides whether overloads (503, 529) come by chance, or from too many calls in flight. In a lane's hash:
--   calm, overload_n   the answers since the last overload, and the latest permit that met one
--   overload_odds      log of the odds that half of the calls meet an overload, and not only `random_share`
--   random_share       share of calls that meet one at random
--   random_below       overloads that met at most `through` calls in flight (concurrency/overload), less those that met
--                      more
-- GIVES: too_many_overloads measures_limit
-- USES: concurrency/detector_constants lane/state

-- Whether more calls meet an overload than chance explains (E. S. Page, "Continuous inspection schemes", 1954). The
-- distance of two overloads is the number of calls that were answered, or that started, between them, whichever is
-- greater: an overload may come sooner than an answer. If it is chance, measures the share of such calls.
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

-- Whether an overload measures a limit: it met more calls in flight than many answered calls did. An overload that met
-- no more speaks against a limit, and outweighs one that did. After several of these the window is too narrow.
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

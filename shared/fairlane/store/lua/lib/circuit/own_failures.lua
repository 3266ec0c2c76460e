-- Finds out whether failures are of their own jobs where a lane answers nobody: rows that no server can answer, which
-- are what is left of a run, fail as in an outage. But an outage meets jobs as they come, and most have never failed
-- before, while such rows have failed before, each time that others were answered. Each job that fails is weighed by
-- how probable it is in either case, as in Wald's sequential test. In a lane's hash:
--   own_odds            log of how much more probable an outage is than OUTAGE_BY_CHANCE times such rows, by the
--                       failures since a call was answered: at 0 and below they are of their own jobs
--   own_n               the lane's latest permit when it last answered a call
--   flawed, flawed_ok   jobs that failed while others were answered, of about the last FLAWED_OF; answers at that time
-- GIVES: recent_flawed weigh_failure note_flawed fails_of_its_own
-- USES: circuit/row_constants
-- NEEDS: KEY.lane

-- Jobs that failed while others were answered, and how many jobs that is among.
function recent_flawed(flawed, flawed_ok, ok)
  return (flawed or 0) * math.exp(((flawed_ok or 0) - ok) / FLAWED_OF), math.min(ok, FLAWED_OF)
end

local function read_numbers(...)
  local numbers = redis.call('HMGET', KEY.lane, ...)
  for i = 1, select('#', ...) do numbers[i] = tonumber(numbers[i] or '') end
  return unpack(numbers, 1, select('#', ...))
end

-- A job's failure has turned out to be its own, for the first time.
function note_flawed()
  local flawed, flawed_ok, ok = read_numbers('flawed', 'flawed_ok', 'seen_ok')
  local flaws = recent_flawed(flawed, flawed_ok, ok or 0)
  redis.call('HSET', KEY.lane, 'flawed', tostring(flaws + 1), 'flawed_ok', ok or 0)
end

-- Weighs a job that fails for the first time since the lane answered somebody: its failure before had the permit
-- `before` (0: there was none). `again`: it failed while others were answered, too.
function weigh_failure(again, before)
  local odds, own_n, flawed, flawed_ok, ok = read_numbers('own_odds', 'own_n', 'flawed', 'flawed_ok', 'seen_ok')
  if before > (own_n or 0) then return end
  local flaws, among = recent_flawed(flawed, flawed_ok, ok or 0)
  local share = (flaws + 1) / (flaws + among + 2)
  local weight = again and share / FAILED_AGAIN or (1 - share) / (1 - FAILED_AGAIN)
  odds = (odds or -math.log(OUTAGE_BY_CHANCE)) + math.log(weight)
  odds = math.max(math.log(OUTAGE_LEAST / OUTAGE_BY_CHANCE), odds)
  redis.call('HSET', KEY.lane, 'own_odds', tostring(odds))
end

-- Whether a failure that ends now is its own job's.
function fails_of_its_own(now)
  local odds, answered_ms = read_numbers('own_odds', 'answered_ms')
  return odds and odds <= 0 and answered_ms and now - answered_ms >= QUIET_MS
end

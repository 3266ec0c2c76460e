-- Finds, on a lane that answers no call, whether its jobs are at fault. At the end of a run, rows that no server can
-- answer may be all that is left, and fail as in an outage. But most jobs that an outage meets never failed before;
-- such rows have, while others were answered. Wald's sequential test weighs each failure by its probability in either
-- case. In a lane's hash:
--   own_odds            log of the odds of an outage to such rows, divided by OUTAGE_BY_CHANCE, from the failures
--                       since a call was answered: at 0 and below the jobs are at fault
--   own_n               the lane's latest permit when it last answered a call
--   flawed, flawed_ok   jobs of about the last FLAWED_OF that failed while others were answered; answers at that time
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

-- Counts a job whose failure has proved to be its own, for the first time.
function note_flawed()
  local flawed, flawed_ok, ok = read_numbers('flawed', 'flawed_ok', 'seen_ok')
  local flaws = recent_flawed(flawed, flawed_ok, ok or 0)
  redis.call('HSET', KEY.lane, 'flawed', tostring(flaws + 1), 'flawed_ok', ok or 0)
end

-- Weighs a job that fails for the first time since the lane answered somebody. `before`: the permit of its previous
-- failure (0: none). `again`: it has failed before, while others were answered.
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

-- Whether a failure now is its own job's fault.
function fails_of_its_own(now)
  local odds, answered_ms = read_numbers('own_odds', 'answered_ms')
  return odds and odds <= 0 and answered_ms and now - answered_ms >= QUIET_MS
end

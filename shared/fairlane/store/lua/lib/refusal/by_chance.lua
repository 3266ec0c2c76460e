-- 429s by chance: some providers serve all customers from one pool, and reject a share of all calls at any rate. A
-- limit rejects next to nothing below it. If 429s come again and again before the lane is back at its estimate, a check
-- (lib/refusal/chance_check.lua) shows the cause. If it is chance, only more 429s than that share show a limit. In a
-- lane's hash:
--   early, early_n, early_ms   429s before the lane was back, less others; the permit of the first, and when it came
--   early_admitted             calls that were admitted until then
--   early_wanted               how many of them begin a check
--   chance_odds                log of the odds that more calls are rejected than by chance
--   chance_from, chance_n, chance_429s   the first and the last permit that count for it, and the 429s among them
--   run_of_429s                429s without an answer in between
-- GIVES: by_chance note_answered
-- USES: lane/counts lane/state rate/curve rate/slow_start refusal/chance_check refusal/chance_constants
--       refusal/named_wait_constants

-- Counts a 429 that begins an epoch, at `rate` a minute. After enough early ones, a check begins at the pace at which
-- calls were admitted meanwhile. A pace far below the rate shows nothing: jobs were scarce, or the lane was shut. Fewer
-- 429s are enough if calls are answered during the waits that 429s name (refusal/named_waits).
local function suspect_chance(row, lease, rate, now)
  local early = row.early or 0
  if early == 0 then row.early_n, row.early_ms, row.early_admitted = lease.n, now, admitted(row, 'requests') end
  row.early = below_estimate(row, 'requests') and early + 1 or math.max(0, early - IN_TIME)
  local wanted = row.early_wanted or EARLY
  if (row.wait_odds or 0) >= DISBELIEVED then wanted = math.ceil(wanted * EARLY_KNOWN) end
  if row.early < wanted then return end
  row.early = 0
  local passed = admitted(row, 'requests') - row.early_admitted
  local pace = passed * 60000 / math.max(LEAST_PACE_MS, now - row.early_ms)
  if passed < wanted or pace < USED * rate then return end
  begin_check(row, pace, 1 - passed / (lease.n - row.early_n))
end

-- How many 429s in a row chance cannot explain, at this share.
local function longest_run(share)
  local likely = math.max(LEAST_CHANCE, math.min(MOST_CHANCE, share))
  return math.max(2, math.ceil(math.log(RUN_BY_CHANCE) / math.log(likely)))
end

-- Whether one more 429 is too many for chance (Page's test, as in concurrency/chance).
local function is_too_many(row, lease)
  local share, apart = row.chance, math.max(0, lease.n - row.chance_n - 1)
  local more = more_than(share)
  local before = math.max(0, (row.chance_odds or 0) - apart * math.log((1 - share) / (1 - more)))
  if before == 0 then row.chance_from, row.chance_429s = lease.n, 0 end
  row.chance_n, row.chance_429s = math.max(row.chance_n, lease.n), row.chance_429s + 1
  row.chance_odds = before + math.log(more / share)
  return row.chance_odds >= CHANCE_CERTAIN
end

-- Begins a check after more 429s than by chance at `rate` a minute: there is a limit, or the share has risen.
local function check_share(row, rate)
  local seen = row.chance_429s / (row.chance_n - row.chance_from + 1)
  begin_check(row, rate * math.max(LEAST_CHECKED, 1 - seen), row.chance, rate, seen)
end

-- Notes that a call was answered.
function note_answered(row, limits, lease, now)
  if (row.run_of_429s or 0) > 0 then row.run_of_429s = 0 end
  if known(row.check_rate) and count_checked(row, lease, 0, now) then forget_rate(row, limits) end
end

-- Whether a 429 at `rate` a minute, whose headers show no limit, counts as chance. Then it does not lower the rate.
function by_chance(row, limits, lease, rate, now)
  if lease.n <= (row.sign or 0) or known(row.shut) and lease.n == row.sign + 1 then return false end
  local checking = known(row.check_rate)
  row.run_of_429s = (row.run_of_429s or 0) + 1
  if row.run_of_429s >= longest_run(checking and row.check_share or known(row.chance) or 0) then
    if checking then break_check_off(row, now) end
    return false
  end
  if checking then
    if count_checked(row, lease, 1, now) then forget_rate(row, limits) end
    return true
  end
  if not known(row.chance) then
    if known(row.requests_age_ms) and row.novice ~= 1 then suspect_chance(row, lease, rate, now) end
    return false
  end
  if is_too_many(row, lease) then check_share(row, rate) end
  return true
end

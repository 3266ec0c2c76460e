-- A check measures whether 429s come by chance, and their share of calls. For some calls the lane stays well below the
-- pace at which calls were admitted. A limit then rejects next to none of them, chance as many as before. In a lane's
-- hash:
--   chance, chance_calls      the share of calls that is rejected by chance, '' if none; how many calls show it
--   check_rate                the rate of the check under way, a minute, else ''
--   check_n                   the last call before it
--   check_calls, check_429s   its calls that have ended, and how many of them were rejected
--   check_share               the share of 429s that led to it, or that is known
--   check_kept, check_seen    the rate that met more 429s than by chance, and their share; '' while none is known
-- GIVES: begin_check break_check_off count_checked more_than
-- USES: estimate/estimate_filter lane/counts lane/state refusal/chance_constants

-- The share of calls that is rejected above a limit, if `share` is rejected by chance.
function more_than(share)
  return math.min(MOST_BEYOND, share + math.max(LEAST_BEYOND, share / 2))
end

-- Begins a check below `pace`, the calls a minute that were admitted. With `kept`, a rate at which `seen` was rejected,
-- more than `share`, the check shows whether that was a limit.
function begin_check(row, pace, share, kept, seen)
  row.check_rate, row.check_n, row.check_calls, row.check_429s = CHECKED_AT * pace, row.granted, 0, 0
  row.check_share = math.max(LEAST_CHANCE, math.min(MOST_CHANCE, share))
  row.check_kept, row.check_seen = kept or '', seen or ''
end

-- Ends a check that has found `share` by chance. Calls during the check measure no limit.
local function end_check(row, share, now)
  row.check_rate, row.chance_odds, row.chance_n, row.early = '', 0, row.granted, 0
  mark_opening(row, 'requests', now, admitted(row, 'requests'), row.granted)
  row.requests_saved = 1
  row.chance = share >= LEAST_CHANCE and math.min(MOST_CHANCE, share) or ''
  if row.chance == '' then row.early_wanted = math.min(MOST_EARLY, 2 * (row.early_wanted or EARLY)) end
end

-- Ends a check without a result, as too many of its calls in a row were rejected.
function break_check_off(row, now)
  end_check(row, known(row.chance) or 0, now)
end

-- Whether the first check has shown chance: true or false; nil while it has shown nothing (Wald's test).
local function has_shown_chance(row)
  local passed = row.check_calls - row.check_429s
  local odds = row.check_429s * math.log(UNDER_CHANCE / OVER_LIMIT)
    - passed * math.log((1 - OVER_LIMIT * row.check_share) / (1 - UNDER_CHANCE * row.check_share))
  if odds <= -NO_CHANCE then return false end
  return odds >= CHANCE and row.check_calls >= FIRST_CHECKED or nil
end

-- Returns to the rate `kept`, which met more 429s than by chance. Unless the share of chance has risen as far, the
-- calls that passed there measure a limit.
local function return_from_check(row, kept, now)
  local est = kept
  if row.check_seen > more_than(row.chance) then
    est = kept * math.max(LEAST_KEPT, math.min(MOST_KEPT, (1 - row.check_seen) / (1 - row.chance)))
  end
  set_estimate(row, 'requests', est, (DOUBT_KEPT * est) ^ 2, now)
  row.requests_age_ms, row.requests_climb_ms, row.shut = 0, 0, ''
end

-- Counts a call of the check that has ended: `rejected` 1, else 0. Returns whether this has shown for the first time
-- that 429s come by chance, and not from the learned rate.
function count_checked(row, lease, rejected, now)
  if lease.n <= row.check_n then return false end
  row.check_calls, row.check_429s = row.check_calls + 1, row.check_429s + rejected
  local known_share, kept = known(row.chance), known(row.check_kept)
  if not known_share then
    local shown = has_shown_chance(row)
    if shown == nil then return false end
    row.chance_calls = row.check_calls
    end_check(row, shown and row.check_429s / row.check_calls or 0, now)
    return shown
  end
  if row.check_calls < CHECKED_CALLS then return false end
  local before = math.min(CHANCE_CALLS, row.chance_calls)
  row.chance_calls = before + row.check_calls
  end_check(row, (known_share * before + row.check_429s) / row.chance_calls, now)
  if known(row.chance) then return_from_check(row, kept, now) end
  return false
end

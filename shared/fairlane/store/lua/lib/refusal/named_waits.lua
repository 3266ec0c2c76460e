-- Decides whether a wait that a 429 or an overload names concerns the whole lane, or only the rejected call. A provider
-- that has shut the lane answers no call that starts during such a wait; one that rejects calls by chance answers most.
-- Until this is known, the lane waits, and single calls try the wait (refusal/wait_tries). In a lane's hash:
--   wait_n, wait_until_ms   the latest permit before such waits, and when the last of them ends
--   wait_odds               log of the odds that calls which start during them are answered
--   firm_ms                 until when the lane waits for other reasons, which show its limit
-- GIVES: wait_of_lane judge_wait
-- USES: lane/state refusal/named_wait_constants refusal/wait_tries

-- Whether the hints of a 429 show which limit is used up: then the whole lane must wait.
local function shows_limit(hints)
  if hints.exhausted and hints.exhausted ~= 'requests' then return true end -- many servers name requests in any 429
  for _, axis in ipairs(AXES) do
    if hints[axis] and hints[axis][1] > 0 and hints[axis][2] == 0 then return true end
  end
  return false
end

-- For how many of the `wait_ms` that a call's answer named the lane waits. `rejected`: by a 429 or an overload. If the
-- lane may go on sooner, only the call's job waits: `waits_ms` of its lease.
function wait_of_lane(row, lease, rejected, hints, wait_ms, now)
  if wait_ms <= 0 then return 0 end
  if not rejected or wait_ms < LEAST_TRIED_MS or shows_limit(hints) then
    row.firm_ms = math.max(row.firm_ms or 0, now + wait_ms)
    return wait_ms
  end
  lease.waits_ms = wait_ms
  local begins = now >= (row.wait_until_ms or 0)
  if begins then row.wait_n = row.granted or 0 end
  row.wait_until_ms = math.max(row.wait_until_ms or 0, now + wait_ms)
  if (row.wait_odds or 0) >= DISBELIEVED then return 0 end
  if begins or lease.n > row.wait_n then plan_try(row, wait_ms, now) end
  return wait_ms
end

-- Widens the window again that 429s have narrowed which were only their calls' own: to as many calls as were answered.
local function widen_again(row)
  if row.window_by ~= 'refusals' or not known(row.window) then return end
  row.window = math.max(row.window, math.floor(row.through or 0))
end

-- Judges such waits by the end of a call that started during one.
function judge_wait(row, lease, signal, now)
  if lease.n <= (row.wait_n or lease.n) or lease.granted_ms >= (row.wait_until_ms or 0) then return end
  local odds = row.wait_odds or 0
  if signal == 'ok' or signal == 'answered' then
    row.wait_odds, row.wait_vain = math.min(MOST_ODDS, odds + TRY_ANSWERED), 0
    if odds < DISBELIEVED and row.wait_odds >= DISBELIEVED then widen_again(row) end
    end_wait(row, lease.granted_ms, now)
  elseif signal == 'limited' or signal == 'overloaded' then
    row.wait_odds = math.max(LEAST_ODDS, odds - TRY_REJECTED)
    if odds < DISBELIEVED then row.wait_vain = (row.wait_vain or 0) + 1 end
  end
end

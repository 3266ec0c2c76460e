-- Ends an attempt: the steps that all ends have in common.
-- In the lane's hash, of its last outage:
--   outage_after, outage_until   the latest permit whose call succeeded before it, and the last permit granted before a
--                                probe ended it
-- GIVES: end_attempt
-- USES: lane/lease outcome/feedback run/blame team/budget_true_up
-- NEEDS: KEY.budget KEY.lane

-- Notes the outage that a probe has ended: all calls so far started while the lane was down. If bad rows were at fault
-- (circuit/own_failures), there was none.
local function note_outage(answered_n, odds)
  if tonumber(odds or '') and tonumber(odds) <= 0 then return end
  local circuit, granted = unpack(redis.call('HMGET', KEY.lane, 'circuit', 'granted'))
  if circuit == 'closed' then redis.call('HSET', KEY.lane, 'outage_after', answered_n, 'outage_until', granted) end
end

-- Applies the outcome (lib/job/report.lua; `used` nil: never sent) to the lane, releases the lease, and trues up the
-- team's budgets by `budget_used`. Returns the lane's news.
function end_attempt(lease, id, outcome, budget_used, now)
  local circuit, answered_n, odds = 'closed', nil, nil
  if lease.probe then
    circuit, answered_n, odds = unpack(redis.call('HMGET', KEY.lane, 'circuit', 'answered_n', 'own_odds'))
  end
  local signal = shown_signal(outcome.signal, now)
  local news, row, awaited = apply_outcome(
    lease, signal, outcome.used, outcome.retry_after_ms, outcome.hints, outcome.reason, now)
  if circuit ~= 'closed' then note_outage(answered_n or 0, odds) end
  release_lease(lease, id, row, awaited)
  CALL.left = row
  true_up_budget(KEY.budget, lease, outcome.signal, budget_used)
  return news
end

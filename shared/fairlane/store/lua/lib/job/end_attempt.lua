-- Ends an attempt: what every end has in common, whatever becomes of its job.
-- In the lane's hash, of its last outage:
--   outage_after, outage_until   the latest permit whose call succeeded before it, and the last that was granted until
--                                a probe ended it
-- GIVES: end_attempt
-- USES: lane/lease outcome/feedback team/budget_true_up
-- NEEDS: KEY.budget KEY.lane

-- Notes the outage that a probe has ended: all calls that started until now did so while the lane was down.
local function note_outage(answered_n)
  local circuit, granted = unpack(redis.call('HMGET', KEY.lane, 'circuit', 'granted'))
  if circuit == 'closed' then redis.call('HSET', KEY.lane, 'outage_after', answered_n, 'outage_until', granted) end
end

-- Applies the outcome (lib/job/report.lua; `used` nil: never sent) to the lane, releases the lease, and trues up the
-- team's budgets by `budget_used`. Returns the lane's news.
function end_attempt(lease, id, outcome, budget_used, now)
  local circuit, answered_n = 'closed', nil
  if lease.probe then circuit, answered_n = unpack(redis.call('HMGET', KEY.lane, 'circuit', 'answered_n')) end
  local news = apply_outcome(
    lease, outcome.signal, outcome.used, outcome.retry_after_ms, outcome.hints, outcome.reason, now)
  if circuit ~= 'closed' then note_outage(answered_n or 0) end
  release_lease(lease, id)
  true_up_budget(KEY.budget, lease, outcome.signal, budget_used)
  return news
end

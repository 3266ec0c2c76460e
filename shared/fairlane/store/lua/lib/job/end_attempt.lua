-- Ends an attempt: what every end has in common, whatever becomes of its job.
-- In the lane's hash, of its last outage:
--   outage_after, outage_until   the latest permit whose call succeeded before it, and the probe that ended it
-- GIVES: end_attempt
-- USES: lane/lease outcome/feedback team/budget_true_up
-- NEEDS: KEY.budget KEY.lane

-- Notes the outage that a probe has ended.
local function note_outage(probe, answered_n)
  if redis.call('HGET', KEY.lane, 'circuit') ~= 'closed' then return end
  redis.call('HSET', KEY.lane, 'outage_after', answered_n, 'outage_until', probe.n)
end

-- Applies the outcome (lib/job/report.lua; `used` nil: never sent) to the lane, releases the lease, and trues up the
-- team's budgets by `budget_used`. Returns the lane's news.
function end_attempt(lease, id, outcome, budget_used, now)
  local answered_n = lease.probe and (redis.call('HGET', KEY.lane, 'answered_n') or 0)
  local news = apply_outcome(
    lease, outcome.signal, outcome.used, outcome.retry_after_ms, outcome.hints, outcome.reason, now)
  if lease.probe then note_outage(lease, answered_n) end
  release_lease(lease, id)
  true_up_budget(KEY.budget, lease, outcome.signal, budget_used)
  return news
end

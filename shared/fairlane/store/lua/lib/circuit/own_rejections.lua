-- Finds out whether a lane's provider rejects certain rows, or any calls. A random draw decides whether a rejected
-- job's retry or another job's first call goes next (lane/retries). At a limit, both are answered equally often; rows
-- that are always rejected are not. Wald's sequential test weighs each drawn retry by its probability in either case,
-- as in circuit/own_failures. In a lane's hash:
--   row_odds                        log of the odds of a limit to such rows, divided by LIMIT_BY_CHANCE: at 0 and
--                                   below, the lane rejects rows
--   fresh_rejected, fresh_answered  first calls drawn that were rejected and answered, of about the last FRESH_RECENT
--   fresh_n, fresh_size             permit and expected tokens of the last of them that was answered
--   weighed_n                       permit of the last retry whose rejection counted
--   spared                          how many rejections of first calls may still be explained by their rows
-- GIVES: rejects_rows judge_rejection
-- USES: circuit/blame circuit/row_constants rate/slow_start

function rejects_rows(row)
  return (row.row_odds or 1) <= 0
end

local function fresh_share(row)
  local rejected = row.fresh_rejected
  return math.max(FRESH_LEAST, math.min(FRESH_MOST, (rejected + 1) / (rejected + row.fresh_answered + 2)))
end

local function count_fresh(row, _, lease, rejected)
  local fade = 1 - 1 / FRESH_RECENT
  row.fresh_rejected = (row.fresh_rejected or 0) * fade + (rejected and 1 or 0)
  row.fresh_answered = (row.fresh_answered or 0) * fade + (rejected and 0 or 1)
  if not rejected then
    row.fresh_n, row.fresh_size = math.max(row.fresh_n or 0, lease.n), lease.charged.input + lease.charged.output
  end
end

-- Undoes what the lane learned from rejections of rows that it took for a limit.
local function start_over(row, limits)
  unblock(row)
  forget_rate(row, limits)
  row.check_rate, row.early = '', 0
  if row.window_by == 'refusals' then row.window = '' end
end

-- Weighs a retry of a rejected job. A rejection counts only if another job's first call, at least half as large, was
-- answered since the job's last rejection and since the last that counted: many calls at once meet a limit together.
local function weigh_retry(row, limits, lease, rejected)
  if not row.fresh_n then return end
  local share, firm, before = fresh_share(row), -math.log(LIMIT_BY_CHANCE), rejects_rows(row)
  if rejected then
    local since = math.max(lease.rejected_n, row.weighed_n or 0)
    if row.fresh_n <= since or 2 * row.fresh_size < lease.charged.input + lease.charged.output then return end
    row.weighed_n = lease.n
  end
  local odds = (row.row_odds or firm) + math.log(rejected and share or (1 - share) / RETRY_ANSWERED)
  row.row_odds = math.max(math.log(LIMIT_LEAST / LIMIT_BY_CHANCE), math.min(firm, odds))
  if rejects_rows(row) and not before then start_over(row, limits) end
end

-- Whether a call was rejected because of its row. First calls may be rejected so only as often as their recent share of
-- rejections explains.
function judge_rejection(row, limits, lease, rejected)
  if lease.drawn then (lease.rejected_n and weigh_retry or count_fresh)(row, limits, lease, rejected) end
  if not rejects_rows(row) or lease.rejected_n then return rejected and rejects_rows(row) end
  local share, spared = fresh_share(row), row.spared or SPARED
  local more = rejected and -1 or SPARED_BEYOND * share / (1 - share)
  row.spared = math.max(0, math.min(SPARED, spared + more))
  return rejected and spared >= 1
end

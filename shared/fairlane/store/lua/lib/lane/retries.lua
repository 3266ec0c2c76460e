-- Retries: which of a run's jobs goes first, one that failed or was rejected, or one that was never called, and whose
-- rejections a job met.
-- GIVES: steps_back whose_rejections
-- USES: circuit/own_failures circuit/own_rejections circuit/row_constants job/attempt_counts job/entry lane/state

local STEP = 0.618 -- of a turn, from permit to permit: multiples of the golden ratio fall evenly, and in no rhythm

-- Whether so large a share of the jobs has failed of late, or been rejected, while others were answered.
local function often_flawed(row, share)
  local flaws, among = recent_flawed(row.flawed, row.flawed_ok, row.seen_ok or 0)
  return flaws > share * (among + FEW_FLAWED)
end

-- Whose rejections a job's further ones are: nil where they are its lane's. They are its "own" where it met more alone
-- than by chance at the share of all other calls that the lane rejects (with Laplace's rule of succession), or any,
-- where the lane rejects rows and not calls. "last": one more ends it.
function whose_rejections(spent, row)
  local own = row.own_rejected or 0
  local rejected = (row.seen_limited or 0) + (row.seen_overloaded or 0) - own
  local chance = ((rejected + 1) / ((row.granted or 0) - own + 2)) ^ spent.alone
  if not rejects_rows(row) then return spent.alone > 0 and chance < ALONE_BY_CHANCE and 'own' or nil end
  return spent.alone >= LAST_LEAST and chance < LAST_BY_CHANCE and 'last' or spent.rejected > 0 and 'own' or nil
end

-- Whether others go before a retry of a job that was rejected, and whether that was drawn. It waits until the lane has
-- answered another call. Where its rejections are its own, or many jobs were rejected alone, it is drawn who goes
-- first, whatever the lane's state, since only so do both meet the same (circuit/own_rejections).
local function rejected_back(spent, row)
  local turn = (row.granted or 0) * STEP % 1
  if whose_rejections(spent, row) then return turn >= 1 / RETRY_TURN, true end
  if often_flawed(row, OFTEN_REJECTED) then return turn >= RETRY_DRAWN, true end
  if known(row.first_n) or row.proved == 0 or (row.sign or 0) > (row.answered_n or 0) then return true, false end
  return spent.alone > 0 and turn >= 1 / RETRY_TURN, false
end

-- Whether others go before the next retry of an offer's run: it was rejected or failed, while the lane's circuit is not
-- closed or its latest calls were rejected alike, or it failed and most retries fail, but for every RETRY_TURN-th call.
-- And whether that was drawn.
function steps_back(offer, row)
  if offer.emptied == offer.hot then return false, false end -- lib/run/next_allowed.lua
  local text = redis.call('LINDEX', offer.hot, 0)
  if not text then return false, false end
  local spent = attempt_counts(offer.jobs, parse_entry(text).job)
  local failed = spent.attempts + spent.unproven > 0
  local shut = (row.circuit or 'closed') ~= 'closed' or (row.alike_from or 0) > (row.answered_n or 0)
  if shut then return spent.rejected > 0 or failed, false end
  if spent.rejected > 0 then return rejected_back(spent, row) end
  return failed and often_flawed(row, OFTEN_FLAWED) and (row.granted or 0) % RETRY_TURN ~= 0, false
end

-- Retries: decides whether a run's retry or a job that was never called goes first, and whose fault a job's rejections
-- are.
-- GIVES: steps_back whose_rejections
-- USES: circuit/function_rejections circuit/own_failures circuit/own_rejections circuit/row_constants
--       job/attempt_counts job/entry lane/state

local STEP = 0.618 -- of a turn from permit to permit: multiples of the golden ratio are spread evenly, without a rhythm

-- Whether more than this share of recent jobs failed, or was rejected, while others were answered.
local function often_flawed(row, share)
  local flaws, among = recent_flawed(row.flawed, row.flawed_ok, row.seen_ok or 0)
  return flaws > share * (among + FEW_FLAWED)
end

-- Whose fault a job's next rejection is; nil: its lane's. "own": it has met more alone than chance explains, by the
-- share of other calls that the lane rejects (Laplace's rule of succession). On a lane that rejects rows, one is
-- enough. "last": one more rejection fails the job.
function whose_rejections(spent, row)
  local own = row.own_rejected or 0
  local rejected = (row.seen_limited or 0) + (row.seen_overloaded or 0) - own
  local chance = ((rejected + 1) / ((row.granted or 0) - own + 2)) ^ spent.alone
  if not rejects_rows(row) then return spent.alone > 0 and chance < ALONE_BY_CHANCE and 'own' or nil end
  return spent.alone >= LAST_LEAST and chance < LAST_BY_CHANCE and 'last' or spent.rejected > 0 and 'own' or nil
end

-- Returns whether others go before a retry of a rejected job, and whether a random draw decided so. The retry waits
-- until the lane has answered another call. But if its rejections are its own, or many jobs were rejected alone, a draw
-- decides in any state of the lane: only so do both meet the same conditions (circuit/own_rejections).
local function rejected_back(spent, row, lane)
  local turn = (row.granted or 0) * STEP % 1
  if is_of_function(lane) then return turn >= RETRY_DRAWN, false end
  if whose_rejections(spent, row) then return turn >= 1 / RETRY_TURN, true end
  if often_flawed(row, OFTEN_REJECTED) then return turn >= RETRY_DRAWN, true end
  if known(row.first_n) or row.proved == 0 or (row.sign or 0) > (row.answered_n or 0) then return true, false end
  return spent.alone > 0 and turn >= 1 / RETRY_TURN, false
end

-- Returns whether others go before the next retry of an offer's run, and whether a random draw decided so. They do
-- while the lane's circuit is not closed, or its latest calls were rejected alike; and if most retries of failed jobs
-- fail, except for every RETRY_TURN-th call.
function steps_back(offer, row)
  if offer.emptied == offer.hot then return false, false end -- lib/run/next_allowed.lua
  local text = redis.call('LINDEX', offer.hot, 0)
  if not text then return false, false end
  local spent = attempt_counts(offer.jobs, parse_entry(text).job)
  local failed = spent.attempts + spent.unproven > 0
  local shut = (row.circuit or 'closed') ~= 'closed' or (row.alike_from or 0) > (row.answered_n or 0)
  if shut then return spent.rejected > 0 or failed, false end
  if spent.rejected > 0 then return rejected_back(spent, row, offer.lane) end
  return failed and often_flawed(row, OFTEN_FLAWED) and (row.granted or 0) % RETRY_TURN ~= 0, false
end

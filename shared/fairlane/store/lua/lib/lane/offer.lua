-- Offers: the runs that a lane may grant permits to, and their next jobs.
-- GIVES: open_offer queued_jobs next_job
-- USES: job/attempt_counts job/entry lane/delays lane/dominant_share lane/state run/bounds run/model_refusals
--       team/budget team/in_flight tokens/reserve tokens/token_margins
-- NEEDS: KEY.queues

local OFTEN = 0.1 -- share of jobs that have failed while others were answered: with more, most retries are in vain
local FEW = 10 -- answers by which the share is taken to be small at first
local TURN = 16 -- calls of which one is a retry even then, so that none waits for all others

-- Offer `i` of `count`: a run's queue on the lane KEY.lane named `name`, with its run's bounds and its team's budget.
function open_offer(i, offer, count, name, now)
  local hot, fresh, jobs, state = unpack(KEY.queues, i * 4 - 3, i * 4)
  return {
    index = i, ref = offer.run, ahead = offer.ahead, team = team_of(offer.run), lane = name,
    hot = hot, fresh = fresh, jobs = jobs, state = state,
    bounds = bounds_of(state, name), budget = budget_of(KEY.queues[count * 4 + i], name, now),
  }
end

-- Jobs queued on the lane by the run of offer `i`.
function queued_jobs(i)
  return redis.call('LLEN', KEY.queues[i * 4 - 3]) + redis.call('LLEN', KEY.queues[i * 4 - 2])
end

-- Whether so many jobs have failed of late while others were answered that retries mostly fail again
-- (circuit/own_failures).
local function often_flawed(row)
  local ok = row.seen_ok or 0
  local flawed = (row.flawed or 0) * math.exp(((row.flawed_ok or 0) - ok) / 100)
  return flawed > OFTEN * (math.min(ok, 100) + FEW)
end

-- Whether others go before the run's next retry: it was rejected, while the lane has rejected or failed calls and
-- answered none that started later, or it has failed, while the lane's circuit is not closed or its latest calls were
-- rejected alike. Also, but for every
-- TURN-th call, where the lane answered others and rejected it, or most retries fail.
local function steps_back(offer, row)
  local shut = (row.circuit or 'closed') ~= 'closed' or (row.alike_from or 0) > (row.answered_n or 0)
  local unanswered = known(row.first_n) or row.proved == 0 or (row.sign or 0) > (row.answered_n or 0)
  local text = redis.call('LINDEX', offer.hot, 0)
  if not text then return false end
  local spent = attempt_counts(offer.jobs, parse_entry(text).job)
  local failed = spent.attempts + spent.unproven > 0
  if spent.rejected > 0 and (shut or unanswered) or failed and shut then return true end
  return (row.granted or 0) % TURN ~= 0 and (spent.alone > 0 or failed and often_flawed(row))
end

-- The first job of the run in `queues`. `reserved` is its charge in tokens, `minutes` what it takes of the lane; nil
-- where they are empty. Where refusals hold all of them, `held_until` says until when (0: when woken).
local function first_job(offer, admission, queues)
  local entry, queue, learns, held_until = next_allowed(offer, queues, admission.now)
  if not entry then return held_until and { held_until = held_until } end
  local reserved, spread = reserve(admission.row, admission.limits, entry, offer.state)
  bound_guess(admission.buckets, reserved, spread)
  local margins = margins_of(admission.row, admission.buckets, reserved, spread)
  local minutes = admission.shares and lane_minutes(admission.row, admission.limits, reserved)
  return {
    entry = entry, queue = queue, learns = learns, reserved = reserved, margins = margins, minutes = minutes,
    guess = spread and spread.guessed,
  }
end

-- The run's next job: ready evaluations and due retries (hot) before items never called (fresh). It is nil where there
-- is none, or where something delays it, which is noted in `delays` (lane/delays). While the lane answers nobody, a job
-- that it rejected repeatedly lets fresh ones go first, unless they are delayed: it may be rejected whatever the lane
-- does, and those show whether the lane answers.
function next_job(offer, admission, delays)
  local job, bound, until_ms
  if not offer.hot_first and steps_back(offer, admission.row) then
    job = first_job(offer, admission, { offer.fresh, offer.hot })
    if job then bound = delayed_by(offer, job, admission) end
    if not bound then return job end
    offer.hot_first = true
  end
  job = first_job(offer, admission, { offer.hot, offer.fresh })
  if not job then return nil end
  bound, until_ms = delayed_by(offer, job, admission)
  if not bound then return job end
  note_delay(delays, offer, bound, until_ms, admission.row)
end

-- Offers: the runs that a lane may grant permits to, their next jobs, and what of a run or its team delays them.
-- GIVES: open_offer queued_jobs next_job delayed_by note_delay
-- USES: circuit/refused_teams circuit/shut_out lane/dominant_share run/bounds run/model_refusals team/budget
--       team/budget_charge team/in_flight team/reserved_shares tokens/reserve tokens/token_margins
-- NEEDS: KEY.queues KEY.starved

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

-- The run's next job: ready evaluations and due retries (hot) before items never called (fresh). `reserved` is its
-- charge in tokens, `minutes` what it takes of the lane; nil where the queue is empty. Where refusals hold all of them,
-- `held_until` says until when (0: when woken).
function next_job(offer, admission)
  local entry, queue, learns, held_until = next_allowed(offer, admission.now)
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

-- What of its run or its team delays a job, and until when (0: when woken); nil where nothing does.
function delayed_by(offer, job, admission)
  if job.held_until then return HELD_BOUND, job.held_until end
  local entry, fresh = job.entry, job.queue == offer.fresh
  local shut_ms = shut_bound(admission.row, offer.team, admission.now)
  if shut_ms then return 'circuit', shut_ms end
  local refused_ms = refused_until(admission.row, offer.team, job.learns, admission.now)
  if refused_ms then return 'refused', refused_ms end
  local reason, until_ms =
    bound_reached(offer.bounds, entry, fresh, offer.ahead, admission.cluster, admission.now)
  if not reason then reason, until_ms = over_budget(offer.budget, entry, offer.state) end
  if not reason then reason, until_ms = beyond_shares(admission.shares, offer.team, job.minutes) end
  return reason, until_ms
end

-- Notes why an offer gets no further permit, and arranges that the lane is woken when that ends. `delays` is {runs,
-- reserved_until}: what is reserved for others may be free with every call, so a run that waits for it is not listed.
function note_delay(delays, offer, bound, until_ms, row)
  if bound == 'reserved' then
    local ends = until_ms > 0 and until_ms or math.huge
    delays.reserved_until = math.min(delays.reserved_until or math.huge, ends)
    return
  end
  local in_flight = offer.bounds.in_flight or 0
  table.insert(delays.runs, { offer = offer.index - 1, bound = bound, until_ms = until_ms, in_flight = in_flight })
  if bound == 'cap' then
    redis.call('SADD', KEY.starved, offer.lane)
  elseif bound == 'team_share' or bound == 'circuit' then
    -- A team that is shut out may go on with each call that ends on the lane.
    row.teams_wait = (until_ms == 0 or bound == 'circuit') and 1 or row.teams_wait
  elseif until_ms == 0 then
    wake_when_released(offer.bounds)
  end
end

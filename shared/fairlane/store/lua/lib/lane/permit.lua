-- Permits: a job leaves its queue, its dispatch number grows by one, and a lease says who may call it until when.
-- GIVES: queued_jobs open_offer next_job delayed_by grant_permit
-- USES: core/time lane/admission lane/dominant_share lane/reserve lane/token_margins run/attempt_counts run/bounds
--       run/model_refusals team/budget team/budget_charge team/in_flight team/reserved_shares
-- NEEDS: KEY.in_flight KEY.leased KEY.leases KEY.queues

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
function next_job(offer, admission, shares)
  local entry, queue, learns, held_until = next_allowed(offer, admission.now)
  if not entry then return held_until and { held_until = held_until } end
  local reserved, spread = reserve(admission.row, admission.limits, entry, offer.state)
  bound_guess(admission.buckets, reserved, spread)
  local margins = margins_of(admission.row, admission.buckets, reserved, spread)
  local minutes = shares and lane_minutes(admission.row, admission.limits, reserved)
  return {
    entry = entry, queue = queue, learns = learns, reserved = reserved, margins = margins, minutes = minutes,
    guess = spread and spread.guessed,
  }
end

-- What of its run or its team delays a job, and until when (0: when woken); nil where nothing does.
function delayed_by(offer, job, admission, shares)
  if job.held_until then return HELD_BOUND, job.held_until end
  local entry, fresh = job.entry, job.queue == offer.fresh
  local reason, until_ms =
    bound_reached(offer.bounds, entry, fresh, offer.ahead, admission.cluster, admission.now)
  if not reason then reason, until_ms = over_budget(offer.budget, entry, offer.state) end
  if not reason then reason, until_ms = beyond_shares(shares, offer.team, job.minutes) end
  return reason, until_ms
end

-- Writes the lease of a job's next attempt under a number greater than any before it, which fences those out.
local function write_lease(lease, jobs, until_ms)
  local spent = attempt_counts(jobs, lease.job)
  spent.number = spent.number + 1
  lease.number = spent.number
  save_attempt_counts(jobs, lease.job, spent)
  local id = table.concat({ lease.ref, whole(lease.job), whole(lease.number) }, '/')
  redis.call('ZADD', KEY.leases, until_ms, id)
  redis.call('HSET', KEY.leased, id, cjson.encode(lease))
  increment_in_flight(KEY.in_flight, lease)
end

-- Grants the job: pops it, charges lane, run and team, and leases it. Returns the permit.
function grant_permit(offer, job, admission, shares, lease_ms)
  local row, limits, now, entry, reserved = admission.row, admission.limits, admission.now, job.entry, job.reserved
  redis.call('LPOP', job.queue)
  local charges = admit(admission, reserved)
  if job.guess then row.guesses = (row.guesses or 0) + 1 end
  local lease = {
    ref = offer.ref, job = entry.job, lane = offer.lane, n = row.granted, inflight = row.inflight, granted_ms = now,
    ok = row.seen_ok, doubtful = row.doubt_for ~= '' and row.doubt_for and 1 or nil,
    input = entry.input, output = entry.output, kind = entry.kind, most = entry.most,
    learns = job.learns, guessed = entry.guessed and 1 or nil, probe = admission.probing or nil,
    guess = job.guess, uncertain = (row.guesses or 0) > 0 or nil,
    charged = reserved, charges = charges, spent = { input = row.spent_input, output = row.spent_output },
  }
  lease.held_ms = usual_call_ms(row, offer.state, entry.kind)
  lease.share = dominant_share(row, limits, reserved, lease.held_ms)
  charge_shares(shares, offer.team, job.minutes)
  charge_bounds(offer.bounds, entry, lease, now)
  charge_budget(offer.budget, entry, offer.state, lease)
  write_lease(lease, offer.jobs, now + lease_ms)
  return {
    offer = offer.index - 1, job = entry.job, number = lease.number, input = entry.input, output = entry.output,
    kind = entry.kind, most = entry.most, guessed = entry.guessed, share = lease.share,
  }
end

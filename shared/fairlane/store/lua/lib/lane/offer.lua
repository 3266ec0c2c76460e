-- Offers: the runs to which a lane may grant permits, and their next jobs.
-- GIVES: for_each_offer queued_jobs next_job
-- USES: core/tries lane/delays lane/dominant_share lane/new_lease lane/retries models/fitting run/bounds
--       run/next_allowed team/budget team/in_flight tokens/reserve tokens/token_margins
-- NEEDS: KEY.headroom_input KEY.headroom_output KEY.headroom_tokens KEY.in_flight KEY.leased KEY.owed KEY.queues
--        KEY.starved

-- Offer `i` of `count`: a run's queue on the lane KEY.lane named `name`, with its run's bounds and its team's budget.
local function open_offer(i, offer, count, name, now)
  local hot, fresh, jobs, state = unpack(KEY.queues, i * 4 - 3, i * 4)
  return {
    index = i, ref = offer.run, ahead = offer.ahead, most_first = offer.first, team = team_of(offer.run), lane = name,
    hot = hot, fresh = fresh, jobs = jobs, state = state,
    bounds = bounds_of(state, name), budget = budget_of(KEY.queues[count * 4 + i], name, now),
  }
end

-- Tries the keys that grants change, and calls `grant` with each offer, in `order`, and with its most permits. The
-- leases of an offer are written together, also if a damaged entry ends it early: then this returns the error as a
-- reply.
function for_each_offer(order, offers, name, now, grant)
  try_keys({
    hash = { KEY.leased, KEY.in_flight, KEY.owed }, set = { KEY.starved },
    list = { KEY.headroom_tokens, KEY.headroom_input, KEY.headroom_output },
  })
  CALL.queued = {}
  for i = 1, #offers do
    local hot, fresh, jobs, state = unpack(KEY.queues, i * 4 - 3, i * 4)
    CALL.queued[hot] = redis.call('LLEN', hot) + redis.call('LLEN', fresh)
    try_keys({ hash = { jobs, #offers > 1 and state or nil, #offers > 1 and KEY.queues[#offers * 4 + i] or nil } })
  end
  for _, i in ipairs(order) do
    local good, failure = pcall(grant, open_offer(i, offers[i], #offers, name, now), offers[i].most)
    write_leases()
    if not good then return type(failure) == 'table' and failure or { err = failure } end
  end
end

-- Jobs queued on the lane by the run of offer `i`.
function queued_jobs(i)
  return CALL.queued[KEY.queues[i * 4 - 3]]
end

-- The run's first job in `queues`, nil if they are empty. `reserved`: its charge in tokens; `minutes`: its share of the
-- lane. If refusals hold all jobs, or all wait for their models, only `held_until` is set (0: when woken).
local function first_job(offer, admission, queues)
  local entry, queue, learns, held_until = next_allowed(offer, queues, admission.now, fitting(offer, admission))
  if not entry and offer.model_until then return { held_until = offer.model_until, bound = 'model' } end
  if not entry then return held_until and { held_until = held_until } end
  local reserved, spread = reserve(admission.row, admission.limits, entry, offer.state)
  bound_guess(admission.buckets, reserved, spread)
  local margins = margins_of(admission.row, admission.limits, admission.buckets, reserved, spread)
  local minutes = admission.shares and lane_minutes(admission, reserved)
  return {
    entry = entry, queue = queue, learns = learns, reserved = reserved, margins = margins, minutes = minutes,
    guess = spread and spread.guessed, model = admission.models and model_named(offer, entry.kind) or nil,
  }
end

-- The run's next job: ready evaluations and due retries (hot) go before items that were never called (fresh). nil if
-- there is none, or if something delays it, which is noted in `delays` (lane/delays). Fresh jobs may go before retries
-- (lane/retries), unless they are delayed.
function next_job(offer, admission, delays)
  local job, bound, until_ms, back, drawn
  local row = admission.row
  offer.model_until = nil
  local alike = (row.circuit or 'closed') ~= 'closed' and (row.alike_from or 0) > (row.answered_n or 0)
  offer.far = alike and ((row.probes or 0) % 2 == 0 and 'middle' or 'last') or nil
  if not offer.hot_first then back, drawn = steps_back(offer, row) end
  drawn = drawn and redis.call('LLEN', offer.fresh) > 0
  if back then
    job = first_job(offer, admission, { offer.fresh, offer.hot })
    if job then bound, job.drawn = delayed_by(offer, job, admission), drawn or nil end
    if not bound then return job and choose(offer, job, admission) end
    offer.hot_first = true
  end
  job = first_job(offer, admission, { offer.hot, offer.fresh })
  if not job then return nil end
  bound, until_ms = delayed_by(offer, job, admission)
  job.drawn = drawn and not back or nil
  if not bound then return choose(offer, job, admission) end
  note_delay(delays, offer, bound, first_of(until_ms, offer.model_until or 0), row)
end

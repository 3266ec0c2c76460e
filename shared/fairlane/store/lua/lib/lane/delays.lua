-- Constraints of its run or its team that delay a job of an offer (lane/offer), and their report to the scheduler.
-- GIVES: delayed_by note_delay
-- USES: circuit/refused_teams circuit/shut_out run/bounds run/first_calls run/held_models team/budget_charge
--       team/reserved_shares
-- NEEDS: KEY.starved

-- The constraint of its run or its team that delays a job, and until when (0: when woken); nil if none does.
function delayed_by(offer, job, admission)
  if job.held_until then return job.bound or HELD_BOUND, job.held_until end
  local entry, fresh = job.entry, job.queue == offer.fresh
  local shut_ms = shut_bound(admission.row, offer.team, admission.now)
  if shut_ms then return 'circuit', shut_ms end
  local refused_ms = refused_until(admission.row, offer.team, job.learns, admission.now)
  if refused_ms then return 'refused', refused_ms end
  local reason, until_ms =
    bound_reached(offer.bounds, entry, fresh, offer.ahead, admission.cluster, admission.now)
  local first_ms = not reason and job.learns and first_until(offer, entry.kind, admission.now)
  if first_ms then return FIRST_BOUND, first_ms end
  if not reason then reason, until_ms = over_budget(offer.budget, entry, offer.state) end
  if not reason then reason, until_ms = beyond_shares(admission.shares, offer.team, job.minutes) end
  return reason, until_ms
end

-- Notes why an offer gets no further permit, and has the lane woken when that ends. `delays` is {runs, reserved_until}:
-- a reserved share may become free with every call, so a run that waits for one is not listed in `runs`.
function note_delay(delays, offer, bound, until_ms, row)
  if bound == 'reserved' then
    local ends = until_ms > 0 and until_ms or math.huge
    delays.reserved_until = math.min(delays.reserved_until or math.huge, ends)
    return
  end
  local in_flight = offer.bounds.in_flight or 0
  table.insert(delays.runs, {
    offer = offer.index - 1, bound = bound, until_ms = until_ms, in_flight = in_flight, over = offer.bounds.over,
  })
  if bound == 'cap' then
    redis.call('SADD', KEY.starved, offer.lane)
  elseif bound == 'team_share' or bound == 'circuit' then
    -- A team that is shut out may start one with each call that ends on the lane.
    row.teams_wait = (until_ms == 0 or bound == 'circuit') and 1 or row.teams_wait
  elseif until_ms == 0 or bound == FIRST_BOUND then
    wake_when_released(offer.bounds)
  end
end

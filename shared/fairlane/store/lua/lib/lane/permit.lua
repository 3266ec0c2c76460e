-- Permits: a job leaves its queue, its dispatch number grows by one, and a lease says who may call it until when.
-- GIVES: grant_permit
-- USES: circuit/refused_teams circuit/shut_out circuit/unanswered lane/admission lane/counts lane/dominant_share
--       lane/new_lease models/model_calls run/charge_bounds run/first_calls team/budget_charge team/reserved_shares

local HELD_FIRST_MS = 1000 -- ms that a call is assumed to be in flight before any has ended

-- How many ms calls of the offer's run and call kind are usually in flight; if unknown, calls of the lane.
local function usual_call_ms(row, offer, kind)
  offer.held_ms = offer.held_ms or {}
  if not offer.held_ms[kind] then
    local held_ms = redis.call('HGET', offer.state, 'held:' .. kind)
    offer.held_ms[kind] = tonumber(held_ms) or row.held_ms or HELD_FIRST_MS
  end
  return offer.held_ms[kind]
end

-- Removes the entry from its queue. An entry with `behind` is not the first there.
local function take_entry(queue, entry)
  if entry.behind then redis.call('LREM', queue, 1, entry.behind) else redis.call('LPOP', queue) end
end

-- Grants the job: takes it from its queue, charges lane, run and team, and leases it. Returns the permit.
function grant_permit(offer, job, admission, lease_ms)
  local row, limits, now, entry, reserved = admission.row, admission.limits, admission.now, job.entry, job.reserved
  take_entry(job.queue, entry)
  CALL.queued[offer.hot] = CALL.queued[offer.hot] - 1 -- lane/offer
  local charges = admit(admission, reserved)
  begin_model_call(row, job.model)
  local alone = start_shut(row, limits, offer.team, now)
  start_refused(row, offer.team, job.learns, now)
  note_unanswered(admission, job.learns)
  local witness = job.learns and start_first(offer, entry, row, now) or nil
  if job.guess then row.guesses = (row.guesses or 0) + 1 end
  local lease = {
    ref = offer.ref, job = entry.job, lane = offer.lane, n = row.granted, granted_ms = now,
    inflight = row.inflight - admission.hung, ok = row.seen_ok, doubtful = admission.doubted and 1 or nil,
    input = entry.input, output = entry.output, kind = entry.kind, most = entry.most,
    model = job.model, learns = job.learns, witness = witness, guessed = entry.guessed and 1 or nil,
    probe = admission.probing or nil, alone = alone or nil, drawn = job.drawn, guess = job.guess,
    uncertain = (row.guesses or 0) > 0 or nil,
    charged = reserved, charges = charges, spent = { input = row.spent_input, output = row.spent_output },
    corrected = (row.tokens_open_ms or row.input_open_ms or row.output_open_ms) and corrections(row),
  }
  lease.held_ms = usual_call_ms(row, offer, entry.kind)
  lease.share = dominant_share(admission, reserved, lease.held_ms)
  charge_shares(admission.shares, offer.team, job.minutes)
  charge_bounds(offer.bounds, entry, lease, now)
  charge_budget(offer.budget, entry, offer.state, lease)
  write_lease(row, lease, offer, now + lease_ms)
  if (row.shut_teams or '') ~= '' then write_leases() end -- circuit/shut_out reads a team's calls in flight
  return {
    offer = offer.index - 1, job = entry.job, number = lease.number, input = entry.input, output = entry.output,
    kind = entry.kind, most = entry.most, guessed = entry.guessed, share = lease.share,
  }
end

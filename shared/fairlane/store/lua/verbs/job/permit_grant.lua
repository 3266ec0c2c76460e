-- Grants permits of one lane to runs in the order offered, as many as its buckets, window and circuit allow now.
-- KEYS: leader clock lane limits owed in_flight reserved_shares leases leased starved headroom_tokens
--       headroom_input headroom_output queues*
-- ARGV: now_ms epoch name room max_in_flight lease_ms shares offers
-- FUNCTION: the scheduler calls it some times a second for each lane
-- USES: core/leader core/time lane/admission lane/granting lane/offer lane/permit
-- RETURNS: JSON, or nil when not the leader:
--   permits   [{offer, job, number, input, output, kind, most, guessed, share}, …]; offers count from 0
--   delayed   [{offer, bound, until_ms, in_flight, over}, …]: runs that their own bound delays (until_ms 0: until
--             woken); `over` is of a budget (lib/run/bounds.lua)
--   queued    jobs that are still queued, per offer; 0 if Redis has lost the run's state
--   at_ms, reason   when to request permits again (0: when woken), and what blocks the lane ('': nothing)
--   suspected       whether 429s of one team's calls alone may be why (lib/circuit/suspect.lua)
--   gather_ms       for how many ms its bucket may gather permits until then, if they are short
--   in_flight, pending, window   calls of the lane, those that hold no slot, and the most at once
--   few_models      whether calls wait for their models (lib/models/models.lua)
--   owed      {"<team>": billionths of lane minutes that it was charged too little}
--   now_ms    the server's time
-- `offers` is [{run, most, ahead, first}, …] (lib/run/bounds.lua, lib/run/first_calls.lua). KEY.queues has hot, fresh,
-- jobs and state of each, and then each team's budget (lib/team/budget.lua). `shares` are the teams' shares of the lane
-- (lib/team/reserved_shares.lua). A job that waits for a reserved part is not in `delayed`, as that may change with
-- every call.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) then return false end

local offers, permits, delays, queued = cjson.decode(ARG.offers), {}, { runs = {} }, {}
local admission, reason, at = open_lane(ARG.shares, tonumber(ARG.room), tonumber(ARG.max_in_flight), now)
local row, limits = admission.row, admission.limits
local shut, shut_at = reason, at
local order, passing
order, passing, reason, at = turn_of_offers(offers, admission, reason, at)

local failure = for_each_offer(order, offers, ARG.name, now, function(offer, most)
  admission.team = offer.team
  if offer.bounds.lost then queued[offer.index] = 0 end
  for _ = 1, (reason or queued[offer.index]) and 0 or most do
    local job = next_job(offer, admission, delays)
    if not job then break end
    reason, at = blocked_by(admission, job.reserved, job.margins)
    if reason then break end
    permits[#permits + 1] = grant_permit(offer, job, admission, tonumber(ARG.lease_ms))
  end
end)
if failure then return failure end
for i = 1, #offers do queued[i] = queued[i] or queued_jobs(i) end
local owed = true_up_shares(admission)
if delays.reserved_until and not reason then
  reason, at = 'reserved', delays.reserved_until < math.huge and delays.reserved_until or 0
end
if passing and #permits == 0 and not reason then reason, at = shut, shut_at end
if reason == 'slots' then redis.call('SADD', KEY.starved, ARG.name) end
local suspected = close_lane(admission, reason, at)
return cjson.encode({
  permits = permits, delayed = delays.runs, queued = queued, at_ms = at or 0, reason = reason or '', owed = owed,
  in_flight = row.inflight or 0, pending = row.pending or 0, window = math.min(admission.window, admission.most),
  few_models = limits.models_at_once ~= nil,
  suspected = suspected, now_ms = now, gather_ms = reason == 'requests' and gathering_ms(admission, queued) or 0,
})

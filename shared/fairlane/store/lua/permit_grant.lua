-- Grants permits of one lane to runs in the order offered, as many as its buckets, window and circuit allow now.
-- KEYS: leader lane limits owed flying allotted leases leased starved headroom_tokens headroom_input headroom_output queues*
-- ARGV: now_ms epoch name room max_in_flight lease_ms allotments offers
-- USES: time leader bucket rate lane entry tokens shape climb openings refusal window present gate tried flying permit bounds period allowance share allotment
-- RETURNS: {granted, at_ms, reason, lane in flight, left, now_ms}; granted is flat: offer, job, number, input, output,
--          kind, share, …; at_ms: ask again then (0: when woken); left: jobs still queued, per offer; kept is flat: offer, what bound of its run holds
--          it back, until when (0: when woken), its calls in flight, …; then the most calls at once, and by team what shares were
--          charged too little, in billionths; then its calls in flight that hold no slot; nil when not the leader.
-- `offers` is [["<run ref>", count, ahead], …] (lib/bounds.lua); KEY.queues has its hot, fresh, jobs and state, offer by offer,
-- and then its team's budget (lib/allowance.lua), offer by offer. `allotments` is what the lane keeps for teams, and the most of
-- each (lib/allotment.lua): who is held back since the rest is reserved is not in `kept`, as that may change with every call.
local now = clock(ARG.now_ms)
if not leads(KEY.leader, ARG.epoch, now) then return false end

local lane, limits, offers, granted = read(KEY.lane), read(KEY.limits), cjson.decode(ARG.offers), {}
local kept = {}
local row = edited(lane)
come_to_now(row, limits, now)
local gate = gate_of(row, limits, tonumber(ARG.room), tonumber(ARG.max_in_flight), now)
local reason, at = shut(row, now)
local allotments = allotments_of(ARG.allotments, row, limits, now)
local apart_ms
for i, offer in ipairs(offers) do
  local hot, fresh, jobs, state = unpack(KEY.queues, i * 4 - 3, i * 4)
  local run = bounds_of(state, ARG.name)
  local budget = budget_of(KEY.queues[#offers * 4 + i], ARG.name, now)
  for _ = 1, reason and 0 or offer[2] do
    local text, queue = next_entry(hot, fresh)
    if not text then break end
    local entry = read_entry(text)
    local reserved = reserve(row, limits, entry, state)
    local held, until_ms = bound(run, entry, queue == fresh, reserved, offer[3], gate.cluster, now)
    if not held then held, until_ms = over_budget(budget, entry, reserved, state) end
    local team, minutes = team_of(offer[1]), allotments and minutes_of(row, limits, reserved)
    if not held then held, until_ms = beyond_allotment(allotments, team, minutes) end
    if held == 'reserved' then
      apart_ms = math.min(apart_ms or math.huge, until_ms > 0 and until_ms or math.huge)
      break
    elseif held then
      for _, value in ipairs({ i, held, until_ms, run.in_flight or 0 }) do kept[#kept + 1] = value end
      if held == 'cap' then redis.call('SADD', KEY.starved, ARG.name)
      elseif held == 'team_share' then row.teams_wait = until_ms == 0 and 1 or row.teams_wait
      elseif until_ms == 0 then hold_lane(run) end
      break
    end
    reason, at = barrier(gate, reserved)
    if reason then break end
    redis.call('LPOP', queue)
    local charges = pass(gate, reserved)
    local lease = {
      ref = offer[1], job = entry.job, lane = ARG.name, n = row.granted, inflight = row.inflight, granted_ms = now,
      input = entry.input, output = entry.output, kind = entry.kind, probe = gate.probing or nil,
      charged = reserved, charges = charges, spent = { input = row.spent_input, output = row.spent_output },
    }
    lease.share = share_of(row, limits, reserved, held_usually(row, state, entry.kind))
    allot(allotments, team, minutes)
    start(run, entry, reserved, lease, now)
    spend(budget, entry, reserved, state, lease)
    local number = lease_out(lease, jobs, now + tonumber(ARG.lease_ms))
    for _, value in ipairs({ i, entry.job, number, entry.input, entry.output, entry.kind, string.format('%.9g', lease.share) }) do
      granted[#granted + 1] = value
    end
  end
end

local left = {}
for i = 1, #offers do
  left[i] = redis.call('LLEN', KEY.queues[i * 4 - 3]) + redis.call('LLEN', KEY.queues[i * 4 - 2])
end
local owed = redis.call('HGETALL', KEY.owed)
if #owed > 0 then redis.call('DEL', KEY.owed) end
keep_allotments(allotments, row.stop ~= 'window' and owed or {})
if apart_ms and not reason then reason, at = 'reserved', apart_ms < math.huge and apart_ms or 0 end
if reason == 'slots' then redis.call('SADD', KEY.starved, ARG.name) end
row.stop = reason or ''
keep_taken(lane, gate.buckets, row, now)
write(KEY.lane, row)
return { granted, at or 0, reason or '', row.inflight or 0, left, now, kept, math.min(gate.window, gate.most), owed,
  row.pending or 0 }

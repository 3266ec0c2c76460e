-- Grants permits of one lane to runs in the order offered, as many as its buckets, window and circuit allow now.
-- KEYS: leader lane limits leases leased starved headroom queues*
-- ARGV: now_ms epoch name room max_in_flight lease_ms offers
-- USES: time leader bucket lane tokens tried permit
-- RETURNS: {granted, at_ms, reason, lane in flight, left, now_ms}; granted is flat: offer, job, number, tokens, …;
--          at_ms: ask again then (0: when woken); left: jobs still queued, per offer; nil when not the leader.
-- `offers` is [["<run ref>", count], …]; KEY.queues has its hot, fresh, jobs and state, offer by offer.
local now = clock(ARG.now_ms)
if not leads(KEY.leader, ARG.epoch, now) then return false end

local lane, limits = read(KEY.lane), read(KEY.limits)
local offers, room = cjson.decode(ARG.offers), tonumber(ARG.room)
local requests, tokens, gap = request_pace(lane, limits), token_pace(limits), limits.min_gap_ms or 0
local request_level, token_level = levels(lane, limits, now)
local inflight, cluster = lane.inflight or 0, redis.call('ZCARD', KEY.leases)
local window, most = limits.max_concurrency or math.huge, tonumber(ARG.max_in_flight)
local probing = lane.circuit == 'open'
local full = tokens and capacity(tokens, burst_of(limits))
local granted, started, taken = {}, lane.started_ms or 0, 0

-- What keeps a job that needs `wanted` tokens from starting now, and when that may be over.
local function barrier(wanted)
  if probing and taken > 0 then return 'probing', 0 end
  if inflight >= window then return 'window', 0 end
  if taken >= room or cluster >= most then return 'slots', 0 end
  if gap > 0 and now < started + gap then return 'gap', started + gap end
  if request_level and request_level < UNIT then return 'requests', now + wait_for(request_level, UNIT, requests) end
  if token_level then
    -- What is larger than the bucket goes when it is full, and leaves a debt.
    local need = math.min(reserved(lane, wanted) * UNIT, full)
    if token_level < need then return 'tokens', now + wait_for(token_level, need, tokens) end
  end
  return nil
end

local reason, at = shut(lane, now)
for i, offer in ipairs(offers) do
  local hot, fresh, jobs, state = unpack(KEY.queues, i * 4 - 3, i * 4)
  for _ = 1, reason and 0 or offer[2] do
    local entry, queue = next_entry(hot, fresh)
    if not entry then break end
    local job, wanted = string.match(entry, '^(%d+):(%d+)$')
    job, wanted = tonumber(job), tonumber(wanted)
    reason, at = barrier(wanted)
    if reason then break end
    redis.call('LPOP', queue)
    local charged = token_level and reserved(lane, wanted)
    local number = lease_out({
      ref = offer[1], job = job, lane = ARG.name, epoch = lane.epoch or 0, granted_ms = now,
      tokens = wanted, probe = probing or nil,
      charged = charged or nil, charge = charged and note_charge(lane, full - token_level) or nil,
    }, jobs, state, now + tonumber(ARG.lease_ms))
    if request_level then request_level = request_level - UNIT end
    if token_level then token_level = token_level - charged * UNIT end
    inflight, cluster, taken, started = inflight + 1, cluster + 1, taken + 1, now
    for _, value in ipairs({ i, job, number, wanted }) do granted[#granted + 1] = value end
  end
end

local left = {}
for i = 1, #offers do
  left[i] = redis.call('LLEN', KEY.queues[i * 4 - 3]) + redis.call('LLEN', KEY.queues[i * 4 - 2])
end
if reason == 'slots' then redis.call('SADD', KEY.starved, ARG.name) end
local change = { stop = reason or '', inflight = inflight, started_ms = started, granted = (lane.granted or 0) + taken }
if request_level then change.request_level, change.request_ms = request_level, now end
if token_level then change.token_level, change.token_ms, change.charges = token_level, now, lane.charges end
if probing and taken > 0 then change.circuit = 'half_open' end
mark(lane, change, now)
write(KEY.lane, change)
return { granted, at or 0, reason or '', inflight, left, now }

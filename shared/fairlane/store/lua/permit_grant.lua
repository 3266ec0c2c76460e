-- Grants permits of one lane to runs in the order offered, as many as its buckets, window and circuit allow now.
-- KEYS: leader lane limits leases leased starved queues*
-- ARGV: now_ms epoch name room max_in_flight lease_ms offers
-- USES: time leader bucket lane
-- RETURNS: {granted, at_ms, reason, lane in flight, left, now_ms}; granted is flat: offer, job, number, tokens, …;
--          at_ms: ask again then (0: when woken); left: jobs still queued, per offer; nil when not the leader.
-- `offers` is [["<run ref>", count], …]; KEY.queues has its hot, fresh, jobs and state, offer by offer.
-- How long admissions are counted before the count starts again; what a first cut is measured by.
local MARK_MS = 2000

local now = clock(ARG.now_ms)
if not leads(KEY.leader, ARG.epoch, now) then return false end

local lane, limits = read(KEY.lane), read(KEY.limits)
local offers, room = cjson.decode(ARG.offers), tonumber(ARG.room)
local per_minute, token_minute, gap = request_rate(lane, limits), token_rate(limits), limits.min_gap_ms or 0
local request_level, token_level = levels(lane, limits, now)
local inflight, cluster = lane.inflight or 0, redis.call('ZCARD', KEY.leases)
local window = limits.max_concurrency or math.huge
local probing = lane.circuit == 'open'
local granted, started, taken = {}, lane.started_ms or 0, 0

local function limit_for(tokens)
  if probing and taken > 0 then return 'probing', 0 end
  if inflight >= window then return 'window', 0 end
  if taken >= room or cluster >= tonumber(ARG.max_in_flight) then return 'slots', 0 end
  if gap > 0 and now < started + gap then return 'gap', started + gap end
  if request_level and request_level < UNIT then
    return 'requests', now + wait_for(request_level, UNIT, per_minute)
  end
  if token_level then
    local need = math.min(tokens * UNIT, capacity(token_minute, burst_of(limits)))
    if token_level < need then return 'tokens', now + wait_for(token_level, need, token_minute) end
  end
  return nil
end

local function grant(index, ref, jobs, state, entry)
  local job, tokens = string.match(entry, '^(%d+):(%d+)$')
  local number, attempts, limited = string.match(redis.call('HGET', jobs, job) or '0:0:0', '^(%d+):(%d+):(%d+)$')
  number = number + 1
  redis.call('HSET', jobs, job, whole(number) .. ':' .. attempts .. ':' .. limited)
  redis.call('HINCRBY', state, 'in_flight', 1)
  local id = string.match(ref, '/(.*)$') .. '/' .. job .. '/' .. whole(number)
  redis.call('ZADD', KEY.leases, now + tonumber(ARG.lease_ms), id)
  redis.call('HSET', KEY.leased, id, cjson.encode({
    ref = ref, job = tonumber(job), number = number, lane = ARG.name, epoch = lane.epoch or 0,
    tokens = tonumber(tokens), granted_ms = now, probe = probing or nil }))
  if request_level then request_level = request_level - UNIT end
  if token_level then token_level = token_level - tokens * UNIT end
  inflight, cluster, taken, started = inflight + 1, cluster + 1, taken + 1, now
  for _, value in ipairs({ index, tonumber(job), number, tonumber(tokens) }) do granted[#granted + 1] = value end
end

local reason, at = shut(lane, now)
for i, offer in ipairs(offers) do
  local hot, fresh, jobs, state = unpack(KEY.queues, i * 4 - 3, i * 4)
  for _ = 1, reason and 0 or offer[2] do
    local queue = hot
    local entry = redis.call('LINDEX', hot, 0)
    if not entry then queue, entry = fresh, redis.call('LINDEX', fresh, 0) end
    if not entry then break end
    reason, at = limit_for(tonumber(string.match(entry, ':(%d+)$')))
    if reason then break end
    redis.call('LPOP', queue)
    grant(i, offer[1], jobs, state, entry)
  end
end

local left = {}
for i = 1, #offers do
  left[i] = redis.call('LLEN', KEY.queues[i * 4 - 3]) + redis.call('LLEN', KEY.queues[i * 4 - 2])
end
if reason == 'slots' then redis.call('SADD', KEY.starved, ARG.name) end
local change = { stop = reason or '', inflight = inflight, started_ms = started, granted = (lane.granted or 0) + taken }
if request_level then change.request_level, change.request_ms = request_level, now end
if token_level then change.token_level, change.token_ms = token_level, now end
if now - (lane.mark_ms or 0) >= MARK_MS then change.mark, change.mark_ms = lane.granted or 0, now end
if probing and taken > 0 then change.circuit = 'half_open' end
write(KEY.lane, change)
return { granted, at or 0, reason or '', inflight, left, now }

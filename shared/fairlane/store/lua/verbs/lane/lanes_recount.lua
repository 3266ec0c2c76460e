-- Recounts the calls in flight of lanes whose counts and leases disagree, as Redis has lost a part.
-- KEYS: leader clock leases leased dirty lanes*
-- ARGV: now_ms epoch channel lease_ms names
-- USES: core/leader core/time core/tries core/wake team/in_flight
-- RETURNS: how many lanes had another count; 0 also where this is not the leader.
-- KEY.lanes has the state and the calls in flight of each lane in `names`. A lease without a deadline gets one, so that
-- it can be recovered.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) then return 0 end
local names, before, sum = cjson.decode(ARG.names), {}, 0
local whole_sets = redis.call('HLEN', KEY.leased) == redis.call('ZCARD', KEY.leases)
for i in ipairs(names) do
  before[i] = tonumber(redis.call('HGET', KEY.lanes[i * 2 - 1], 'inflight') or '') or 0
  whole_sets, sum = whole_sets and before[i] >= 0, sum + before[i]
end
if whole_sets and sum == redis.call('HLEN', KEY.leased) then return 0 end

try_keys({ set = { KEY.dirty } })
local leases, off = {}, 0
local records = redis.call('HGETALL', KEY.leased)
for i = 1, #records, 2 do
  local lease = cjson.decode(records[i + 1])
  if not redis.call('ZSCORE', KEY.leases, records[i]) then
    redis.call('ZADD', KEY.leases, now + tonumber(ARG.lease_ms), records[i])
  end
  leases[lease.lane] = leases[lease.lane] or {}
  table.insert(leases[lease.lane], lease)
end
for i, name in ipairs(names) do
  local held, pending = leases[name] or {}, 0
  if before[i] ~= #held then
    off = off + 1
    redis.call('DEL', KEY.lanes[i * 2])
    for _, lease in ipairs(held) do
      increment_in_flight(KEY.lanes[i * 2], team_of(lease.ref), 1)
      if lease.pending then pending = pending + 1 end
    end
    redis.call('HSET', KEY.lanes[i * 2 - 1], 'inflight', #held, 'pending', pending, 'hung_n', '')
    wake(KEY.dirty, ARG.channel, name)
  end
end
return off

-- Notes that a worker is alive, extends the leases it holds, and lists those it has lost.
-- KEYS: clock workers leases leased dirty
-- ARGV: now_ms channel worker info lease_ms attempts changed
-- USES: core/time core/tries core/wake
-- RETURNS: the attempts among those given that the worker no longer holds.
-- `info` (JSON) is stored behind the time of the heartbeat; `changed` is 1 if it differs from the last one's.
try_keys({ hash = { KEY.leased }, set = { KEY.dirty }, zset = { KEY.leases } })
local now, lost = clock(ARG.now_ms, KEY.clock), {}
local known = redis.call('HSET', KEY.workers, ARG.worker, whole(now) .. ' ' .. ARG.info) == 0
if ARG.changed == '1' or not known then wake(KEY.dirty, ARG.channel, '*') end
local ids, until_ms = cjson.decode(ARG.attempts), now + tonumber(ARG.lease_ms)
local holds = '"worker":' .. cjson.encode(ARG.worker) -- within a text of the lease its quotes would be escaped
for first = 1, #ids, 1000 do
  local last, kept = math.min(first + 999, #ids), {}
  for i, record in ipairs(redis.call('HMGET', KEY.leased, unpack(ids, first, last))) do
    local id = ids[first + i - 1]
    if record and string.find(record, holds, 1, true) then
      kept[#kept + 1], kept[#kept + 2] = until_ms, id
    else
      lost[#lost + 1] = id
    end
  end
  if #kept > 0 then redis.call('ZADD', KEY.leases, 'XX', unpack(kept)) end
end
return lost

-- Configures a lane's limits; effective with the next permit, and with the next claim of a permit granted before.
-- KEYS: clock lanes lane limits dirty audit
-- ARGV: now_ms channel control name fields audit
-- USES: buckets/arrival_bounds buckets/buckets core/audit core/time core/wake lane/state
-- RETURNS: 1 if the lane is new, else 0.
-- `fields` is an object of texts, as they are stored; null removes a limit.
try_audited({ hash = { KEY.lane, KEY.limits }, set = { KEY.dirty } })
local fresh, before, changed = redis.call('SADD', KEY.lanes, ARG.name), {}, false
for field, value in pairs(cjson.decode(ARG.fields)) do
  before[field], changed = redis.call('HGET', KEY.limits, field) or cjson.null, true
  if value == cjson.null then
    redis.call('HDEL', KEY.limits, field)
  else
    redis.call('HSET', KEY.limits, field, value)
  end
end
if changed then
  audit({before = before})
  local lane, limits = read_hash(KEY.lane), read_hash(KEY.limits)
  if next(lane) then
    local row = edited(lane)
    note_arrival_bounds(lane, limits, buckets_of(lane, limits, clock(ARG.now_ms, KEY.clock)), row)
    write_hash(KEY.lane, row)
  end
end
wake(KEY.dirty, ARG.channel, ARG.name)
if fresh == 1 then redis.call('PUBLISH', ARG.control, 'lanes') end
return fresh

-- Configures a lane's limits; effective with the next permit.
-- KEYS: lanes limits dirty audit
-- ARGV: channel control name fields audit
-- USES: core/audit core/wake
-- RETURNS: 1 if the lane is new, else 0.
-- `fields` is an object of texts, as they are stored; null removes a limit.
local fresh, before, changed = redis.call('SADD', KEY.lanes, ARG.name), {}, false
for field, value in pairs(cjson.decode(ARG.fields)) do
  before[field], changed = redis.call('HGET', KEY.limits, field) or cjson.null, true
  if value == cjson.null then
    redis.call('HDEL', KEY.limits, field)
  else
    redis.call('HSET', KEY.limits, field, value)
  end
end
if changed then audit({before = before}) end
wake(KEY.dirty, ARG.channel, ARG.name)
if fresh == 1 then redis.call('PUBLISH', ARG.control, 'lanes') end
return fresh

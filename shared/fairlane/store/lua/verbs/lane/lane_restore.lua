-- Restores the learned limits of a lane that Redis has lost, with empty buckets and a ramp.
-- KEYS: clock lanes lane limits
-- ARGV: now_ms name fields
-- USES: buckets/buckets concurrency/detector_constants core/time core/tries lane/state
-- RETURNS: 1 restored, 0 Redis has the lane.
-- `fields` is an object of the lane's fields. Estimates come back just below what they were, and less sure.
if redis.call('HEXISTS', KEY.lane, 'known_ms') == 1 then return 0 end
local now, row = clock(ARG.now_ms, KEY.clock), edited(read_hash(KEY.lane))
for name, value in pairs(cjson.decode(ARG.fields)) do row[name] = tonumber(value) or value end
for _, axis in ipairs(AXES) do
  local est = known(row[axis .. '_est'])
  if est then
    row[axis .. '_est'], row[axis .. '_var'] = est * CAREFUL, (UNSURE * est) ^ 2
    if known(row[axis .. '_age_ms']) then row[axis .. '_age_ms'] = 0 end
  end
end
empty_buckets(row, read_hash(KEY.limits), row, now)
row.known_ms, row.ramp_ms = now, now
try_keys({ set = { KEY.lanes } })
write_hash(KEY.lane, row)
redis.call('SADD', KEY.lanes, ARG.name)
return 1

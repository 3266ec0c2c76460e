-- A lane starts from what another has learned, with empty buckets and a ramp; what it holds or waits for stays its own.
-- KEYS: lane from limits
-- ARGV: now_ms since_ms fields
-- USES: time bucket rate lane
-- RETURNS: 1 taken over, 0 where nothing was learned there, or the lane has done so since `since_ms`; one that was used is
--          left as it is where that is 0.
-- `fields` are the names of the fields of a lane that are learned.
local from, now, since_ms = read(KEY.from), clock(ARG.now_ms), tonumber(ARG.since_ms)
local row, fields = edited(read(KEY.lane)), cjson.decode(ARG.fields)
if not from.known_ms or row.known_ms and (row.inherited_ms or 0) >= since_ms then return 0 end
redis.call('HDEL', KEY.lane, unpack(fields))
row = edited(read(KEY.lane))
for _, name in ipairs(fields) do row[name] = from[name] end
empty(row, read(KEY.limits), row, now)
row.known_ms, row.ramp_ms, row.inherited_ms = row.known_ms or now, now, math.max(now, since_ms)
write(KEY.lane, row)
return 1

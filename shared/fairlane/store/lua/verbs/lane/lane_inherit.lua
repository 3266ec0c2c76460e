-- Starts a lane from what another has learned, with empty buckets and a ramp; its calls and its queue stay its own.
-- KEYS: clock lane from limits
-- ARGV: now_ms since_ms fields
-- USES: buckets/buckets core/time lane/state
-- RETURNS: 1 inherited; 0 if the other lane has learned nothing, if this one has inherited since `since_ms`, or, with
--          `since_ms` 0, if this one was used.
-- `fields` are the names of a lane's learned fields.
local from, now, since_ms = read_hash(KEY.from), clock(ARG.now_ms, KEY.clock), tonumber(ARG.since_ms)
local row, fields = edited(read_hash(KEY.lane)), cjson.decode(ARG.fields)
if not from.known_ms or row.known_ms and (row.inherited_ms or 0) >= since_ms then return 0 end
redis.call('HDEL', KEY.lane, unpack(fields))
row = edited(read_hash(KEY.lane))
for _, name in ipairs(fields) do row[name] = from[name] end
empty_buckets(row, read_hash(KEY.limits), row, now)
row.known_ms, row.ramp_ms, row.inherited_ms = row.known_ms or now, now, math.max(now, since_ms)
write_hash(KEY.lane, row)
return 1

-- Reads lanes as permit_grant sees them: the limit in force of each axis, its source, and what shuts the lane.
-- KEYS: clock lanes*
-- ARGV: now_ms
-- USES: core/keys core/time lane/state lane/view
-- RETURNS: JSON {now_ms, lanes: [{state, limits, view}, …]}; KEY.lanes has state and limits of each lane in turn.
--          `state` and `limits` are those hashes; `view` is {axes: {"<axis>": {allowed, learned, source, shape,
--          level, full, from_ms, renews_ms, others}}, concurrency, reason, until_ms, ramp, latency_ms}.
local function texts(key)
  local flat, found = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end

local now, refused = clock(ARG.now_ms, KEY.clock), refuse_keys(KEY.lanes, 200)
if refused then return refused end
local lanes = {}
for i = 1, #KEY.lanes, 2 do
  local view = view_of_lane(read_hash(KEY.lanes[i]), read_hash(KEY.lanes[i + 1]), now)
  lanes[#lanes + 1] = { state = texts(KEY.lanes[i]), limits = texts(KEY.lanes[i + 1]), view = view }
end
return cjson.encode({ now_ms = now, lanes = lanes })

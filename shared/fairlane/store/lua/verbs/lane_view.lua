-- Reads the state of lanes by the rules that grant: what each axis allows, by which source, and what shuts the lane.
-- KEYS: lanes*
-- ARGV: now_ms
-- USES: core/keys core/time lane/buckets lane/concurrency_limit lane/detector_constants lane/limit_source lane/limits
--       lane/rate lane/state lane/token_bucket lane/window_detector
-- RETURNS: JSON {now_ms, lanes: [{state, limits, view}, …]}; KEY.lanes has state and limits of each lane in turn.
--          `state` and `limits` are those hashes; `view` is {axes: {"<axis>": {allowed, learned, source, shape,
--          level, full, from_ms, renews_ms, others}}, concurrency, reason, until_ms, ramp, latency_ms}.
local now = clock(ARG.now_ms)

local function axis_view(row, limits, axis)
  local configured_limit = limits[CONFIGURED[axis]]
  local per_minute, configured = allowed(row, limits, axis)
  local learned = axis == 'day' and row.day_rate or axis ~= 'day' and learned_rate(row, axis, configured_limit)
  local source = limit_source(row, limits, axis, configured, learned)
  local view = { allowed = per_minute, source = source, shape = 'unknown', others = others_rate(row, axis) }
  view.learned = configured_limit ~= 0 and learned or nil
  if axis == 'day' then
    local used, ends, shut_ms = day_use(row, now)
    view.level, view.renews_ms = per_minute and per_minute - used, shut_ms or ends
  elseif has_window(row, axis) then
    roll_windows(row, axis, 0, now)
    view.shape, view.renews_ms = 'window', row[axis .. '_edge_ms']
  elseif known(row[axis .. '_age_ms']) and not known(row[axis .. '_long_ms']) then
    view.shape = 'bucket'
  end
  return view
end

-- How long a call with an answer of the usual length takes, by the latest successes.
local function latency(row, limits)
  if not row.token_ms then return nil end
  local output = (row.spent_output or 0) / math.max(1, row.granted or 1) / (limits.output_factor or 1)
  return row.token_ms * (FIRST_TOKEN + math.max(0, output))
end

local function texts(key)
  local flat, found = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end

local lanes, refused = {}, refuse_keys(KEY.lanes, 200) if refused then return refused end
for i = 1, #KEY.lanes, 2 do
  local lane, limits = read_hash(KEY.lanes[i]), read_hash(KEY.lanes[i + 1])
  lane.asked_ms = now
  local row, most, axes = edited(lane), concurrency_limit(lane, limits), {}
  for axis in pairs(CONFIGURED) do axes[axis] = axis_view(row, limits, axis) end
  for _, bucket in ipairs(buckets_of(lane, limits, now)) do
    local view = axes[bucket.axis]
    view.level, view.full, view.from_ms = bucket.level / UNIT, bucket.full / UNIT, bucket.from_ms
  end
  local reason, at = shut_reason(lane, now)
  local view = {
    axes = axes, concurrency = most < math.huge and most or nil, reason = reason, until_ms = at,
    ramp = ramp(lane, now), latency_ms = latency(lane, limits),
  }
  lanes[#lanes + 1] = { state = texts(KEY.lanes[i]), limits = texts(KEY.lanes[i + 1]), view = view }
end
return cjson.encode({ now_ms = now, lanes = lanes })

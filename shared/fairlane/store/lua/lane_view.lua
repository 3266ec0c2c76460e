-- How lanes stand: what each allows, who says so, and what shuts it, by the rules that grant. Changes nothing.
-- KEYS: lanes*
-- ARGV: now_ms
-- USES: time bucket rate lane source shape window
-- RETURNS: {now_ms, {state, limits, view}, …}; KEY.lanes has state and limits of each lane in turn; a view is JSON.
local now = clock(ARG.now_ms)

local function axis_view(row, limits, axis)
  local said = limits[STATED[axis]]
  local per_minute, stated = allowed(row, limits, axis)
  local learned = axis == 'day' and row.day_rate or axis ~= 'day' and believed(row, axis, said)
  if said == 0 then learned = nil end
  local source = source_of(row, limits, axis, stated, learned)
  local view = { allowed = per_minute, learned = learned or nil, source = source, shape = 'unknown' }
  if axis == 'day' then
    local used, ends = today(row, now)
    view.level, view.renews_ms = per_minute and per_minute - used, ends
  elseif windowed(row, axis) then
    turn(row, axis, 0, now)
    view.shape, view.renews_ms = 'window', row[axis .. '_edge_ms']
  elseif known(row[axis .. '_age_ms']) and not known(row[axis .. '_long_ms']) then
    view.shape = 'bucket'
  end
  return view
end

-- How long a call with an answer of the usual length takes, by the latest that succeeded.
local function latency(row, limits)
  if not row.token_ms then return nil end
  local output = (row.spent_output or 0) / math.max(1, row.granted or 1) / (limits.output_factor or 1)
  return row.token_ms * (FIRST_TOKEN + math.max(0, output))
end

local reply = { now }
for i = 1, #KEY.lanes, 2 do
  local lane, limits = read(KEY.lanes[i]), read(KEY.lanes[i + 1])
  local row, most, axes = edited(lane), places(lane, limits), {}
  for axis in pairs(STATED) do axes[axis] = axis_view(row, limits, axis) end
  for _, bucket in ipairs(buckets_of(lane, limits, now)) do
    local view = axes[bucket.axis]
    view.level, view.full, view.from_ms = bucket.level / UNIT, bucket.full / UNIT, bucket.from_ms
  end
  local reason, at = shut(lane, now)
  local view = cjson.encode({
    axes = axes, places = most < math.huge and most or nil, reason = reason, until_ms = at, ramp = ramp(lane, now),
    latency_ms = latency(lane, limits),
  })
  reply[#reply + 1] = { redis.call('HGETALL', KEY.lanes[i]), redis.call('HGETALL', KEY.lanes[i + 1]), view }
end
return reply

-- A lane as `permit_grant` sees it: the limit in force of each axis, its source, and what shuts the lane.
-- GIVES: view_of_lane
-- USES: buckets/buckets buckets/token_bucket concurrency/concurrency_limit concurrency/detector_constants
--       lane/limits lane/state rate/rate reported/free reported/limit_source reported/window_detector

local function axis_view(row, limits, axis, now)
  local configured_limit = limits[CONFIGURED[axis]]
  row[axis .. '_flat_ms'] = row.asked_ms -- what a bucket has saved is no part of its limit
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

-- The latency of a call with an answer of average length, in ms, by the latest successes.
local function latency(row, limits)
  if not row.token_ms then return known(row.usual_ms) end
  local output = (row.spent_output or 0) / math.max(1, row.granted or 1) / (limits.output_factor or 1)
  return row.token_ms * (FIRST_TOKEN + math.max(0, output))
end

-- The view that verb lane_view describes, of a lane and its limits as `read_hash` reads them.
function view_of_lane(lane, limits, now)
  lane.asked_ms = now
  local row, most, axes = edited(lane), concurrency_limit(lane, limits), {}
  for axis in pairs(CONFIGURED) do axes[axis] = axis_view(row, limits, axis, now) end
  for _, bucket in ipairs(buckets_of(lane, limits, now)) do
    local view = axes[bucket.axis]
    view.level, view.full, view.from_ms = bucket.level / UNIT, bucket.full / UNIT, bucket.from_ms
  end
  local reason, at = shut_reason(lane, now)
  return {
    axes = axes, concurrency = most < math.huge and most or nil, reason = reason, until_ms = at,
    ramp = ramp(lane, now), latency_ms = latency(lane, limits),
  }
end

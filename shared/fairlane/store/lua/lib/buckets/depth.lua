-- Learns how deep the bucket of an axis is whose limit nobody has configured: <axis>_deep, as a multiple of the depth
-- that it has at first. It grows with every call that is answered while the axis limits jobs; a refusal halves it.
-- GIVES: learned_depth deepen flatten
-- USES: buckets/depth_constants rate/constants rate/lift

-- A bucket that holds no call is never of use: at least so long does the rate take for one.
local function one_call_ms(lane, axis, per_minute)
  local tokens = 0
  if axis ~= 'requests' and axis ~= 'input' then tokens = lane.answer_mean or 0 end
  if axis ~= 'requests' and axis ~= 'output' and (lane.granted or 0) > 0 then
    tokens = tokens + (lane.spent_input or 0) / lane.granted
  end
  return tokens / per_minute * 60000
end

local function shown_at(lane, axis, per_minute)
  return (lane[axis .. '_fullest'] or 0) / per_minute * 60000 - SPREAD_MS
end

-- Whether headers show how deep the bucket is: less than a configured burst. Those that show a minute's view show more.
-- While a lane is lifted, the burst is one of the reported rate.
local function shows_depth(lane, limits, axis, per_minute)
  local reported = lane[axis .. '_reported']
  local lifting = reported and reported ~= '' and lifted(lane, axis, reported) < reported
  local shown_ms = shown_at(lane, axis, lifting and reported or per_minute)
  return shown_ms > 0 and shown_ms <= (limits.burst_ms or 1000)
end

-- What an axis may save of a learned rate, in ms, and what it might at first: no more than a configured burst, or than
-- headers show. The third result says whether headers show how deep it is.
function learned_depth(lane, limits, axis, per_minute)
  local shown_ms = shown_at(lane, axis, per_minute)
  local call_ms, burst_ms = one_call_ms(lane, axis, per_minute), limits.burst_ms or 1000
  local shown = axis ~= 'requests' and shown_ms > 0
  local first_ms = math.max(LEARNED_BURST_MS, (shown and CALLS_SHOWN or CALLS_DEEP) * call_ms)
  local deep_ms = math.max(first_ms * (lane[axis .. '_deep'] or 1), LEAST_DEPTH_MS, call_ms)
  local shows = shows_depth(lane, limits, axis, per_minute)
  if shows then deep_ms = math.max(deep_ms, shown_ms) end
  return math.ceil(math.min(math.max(burst_ms, shown_ms), deep_ms)), first_ms, shows
end

-- After an answered call, and after a refusal. `bucket` is one of lib/buckets/buckets.lua.
function deepen(change, bucket)
  change[bucket.axis .. '_deep'] = bucket.burst_ms / bucket.first_ms * DEEPER
end

function flatten(change, bucket)
  change[bucket.axis .. '_deep'] = bucket.burst_ms / bucket.first_ms * FLATTER
end

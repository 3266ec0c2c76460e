-- Learns the depth of a bucket whose limit nobody has configured: <axis>_deep, a multiple of its first depth. It grows
-- with every call that is answered while the axis limits jobs; a 429 halves it.
-- GIVES: learned_depth deepen flatten
-- USES: buckets/depth_constants rate/constants rate/lift

-- Milliseconds that the rate needs for one average call: a bucket that holds less is of no use.
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

-- Whether headers show the depth of the bucket: less than a configured burst. Headers that count a minute show more.
-- While a lane is lifted, the burst is measured by the reported rate.
local function shows_depth(lane, limits, axis, per_minute)
  local reported = lane[axis .. '_reported']
  local lifting = reported and reported ~= '' and lifted(lane, axis, reported) < reported
  local shown_ms = shown_at(lane, axis, lifting and reported or per_minute)
  return shown_ms > 0 and shown_ms <= (limits.burst_ms or 1000)
end

-- The depth of an axis with a learned rate, in ms, and its first depth: no more than a configured burst, or than
-- headers show. Also returns whether headers show the depth.
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

-- Deepens a bucket of lib/buckets/buckets.lua after an answered call; `flatten` halves it after a 429.
function deepen(change, bucket)
  change[bucket.axis .. '_deep'] = bucket.burst_ms / bucket.first_ms * DEEPER
end

function flatten(change, bucket)
  change[bucket.axis .. '_deep'] = bucket.burst_ms / bucket.first_ms * FLATTER
end

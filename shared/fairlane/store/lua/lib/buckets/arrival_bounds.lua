-- Bounds by which late claims may exceed a lane's rate (lib/buckets/arrivals.lua). Permits may use a part of a
-- configured burst; the rest is for calls that are claimed or sent late. In a lane's hash, for claims:
--   <axis>_pace, <axis>_depth      what a bucket of arrivals earns a millisecond and holds, as of the latest permits
--   good_ms                        for how long after its claim a call may still be sent
-- GIVES: permit_burst_ms note_arrival_bounds
-- USES: buckets/arrival_constants lane/state

local function part_of(limits, most_ms)
  return math.floor(math.min(most_ms, (limits.burst_ms or 1000) / PART_OF_BURST))
end

-- The part of a configured burst, in ms, that permits may use.
function permit_burst_ms(limits)
  return (limits.burst_ms or 1000) - part_of(limits, CLAIM_JITTER_MS) - part_of(limits, GOOD_MS)
end

-- Notes the bounds for claims, from the buckets that grant permits now.
function note_arrival_bounds(lane, limits, buckets, change)
  local limited = {}
  for _, bucket in ipairs(buckets) do
    local axis, depth = bucket.axis, bucket.full + bucket.pace * part_of(limits, CLAIM_JITTER_MS)
    limited[axis] = true
    if lane[axis .. '_pace'] ~= bucket.pace then change[axis .. '_pace'] = bucket.pace end
    if lane[axis .. '_depth'] ~= depth then change[axis .. '_depth'] = depth end
  end
  for _, axis in ipairs(AXES) do
    if lane[axis .. '_pace'] and lane[axis .. '_pace'] ~= '' and not limited[axis] then change[axis .. '_pace'] = '' end
  end
  local good = math.max(LEAST_GOOD_MS, part_of(limits, GOOD_MS))
  if lane.good_ms ~= good then change.good_ms = good end
end

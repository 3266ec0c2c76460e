-- Bounds by which late claims may exceed a lane's rate (lib/buckets/arrivals.lua). Permits may use a part of a
-- configured burst; the rest is for calls that are claimed or sent late. In a lane's hash, for claims:
--   <axis>_pace, <axis>_depth      what a bucket of arrivals earns a millisecond and holds, as of the latest permits
--   good_ms                        for how long after its claim a call may still be sent
--   claim_early_ms                 how much sooner than its bucket allows a call may be claimed, on a lane whose
--                                  configured bucket holds one call: its worker waits for that time; else ''
-- GIVES: permit_burst_ms holds_one_call pace_of_single_calls note_arrival_bounds
-- USES: buckets/arrival_constants buckets/token_bucket lane/state

local function part_of(limits, most_ms)
  return math.floor(math.min(most_ms, (limits.burst_ms or 1000) / PART_OF_BURST))
end

-- The part of a configured burst, in ms, that permits may use.
function permit_burst_ms(limits)
  return (limits.burst_ms or 1000) - part_of(limits, CLAIM_JITTER_MS) - part_of(limits, GOOD_MS)
end

-- Whether a configured burst leaves permits less than one call: then calls may start one at a time only.
function holds_one_call(pace, limits)
  return pace * permit_burst_ms(limits) < UNIT
end

-- The pace of a bucket of one call: each call starts a little later than the provider allows, as its way may be quicker
-- than that of the call before.
function pace_of_single_calls(pace)
  local call_ms = UNIT / pace
  return math.max(1, math.floor(UNIT / (call_ms + math.min(CALLS_APART_MS, APART_PART * call_ms))))
end

-- Notes the bounds for claims, from the buckets that grant permits now.
function note_arrival_bounds(lane, limits, buckets, change)
  local limited, early = {}, ''
  for _, bucket in ipairs(buckets) do
    local axis, jitter_ms = bucket.axis, part_of(limits, CLAIM_JITTER_MS)
    if bucket.single then early, jitter_ms = CLAIM_JITTER_MS, CLAIM_JITTER_MS end
    local depth = bucket.full + bucket.pace * jitter_ms
    limited[axis] = true
    if lane[axis .. '_pace'] ~= bucket.pace then change[axis .. '_pace'] = bucket.pace end
    if lane[axis .. '_depth'] ~= depth then change[axis .. '_depth'] = depth end
  end
  for _, axis in ipairs(AXES) do
    if lane[axis .. '_pace'] and lane[axis .. '_pace'] ~= '' and not limited[axis] then change[axis .. '_pace'] = '' end
  end
  local good = math.max(LEAST_GOOD_MS, part_of(limits, GOOD_MS))
  if lane.good_ms ~= good then change.good_ms = good end
  if (lane.claim_early_ms or '') ~= early then change.claim_early_ms = early end
end

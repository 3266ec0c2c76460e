-- Holds the calls that reach a provider to the lane's rate and burst, however late workers claim their permits.
-- Permits come from one bucket of each axis (lane/buckets); claims are charged to another, somewhat deeper:
--   <axis>_sent, <axis>_sent_ms    its level in units, and when that was
--   <axis>_pace, <axis>_depth      what it earns a millisecond and holds, as of the lane's latest permits
--   good_ms                        for how long after its claim a call may still be sent
-- Permits that piled up behind a stall are claimed at once: those beyond the depth are late and are never sent.
-- GIVES: burst_of note_arrival_bounds arrive unsend hold_to_arrivals
-- USES: lane/arrival_constants lane/token_bucket

local SENT_AXES = { 'requests', 'tokens', 'input', 'output' }

local function part_of(limits, most_ms)
  return math.floor(math.min(most_ms, (limits.burst_ms or 1000) / PART_OF_BURST))
end

-- What permits may use of a configured burst, in ms: the rest is for calls that are claimed late or sent late.
function burst_of(limits)
  return (limits.burst_ms or 1000) - part_of(limits, CLAIM_JITTER_MS) - part_of(limits, GOOD_MS)
end

-- Notes how claims are to be held, as of the buckets that grant permits now.
function note_arrival_bounds(lane, limits, buckets, change)
  local limited = {}
  for _, bucket in ipairs(buckets) do
    local axis, depth = bucket.axis, bucket.full + bucket.pace * part_of(limits, CLAIM_JITTER_MS)
    limited[axis] = true
    if lane[axis .. '_pace'] ~= bucket.pace then change[axis .. '_pace'] = bucket.pace end
    if lane[axis .. '_depth'] ~= depth then change[axis .. '_depth'] = depth end
  end
  for _, axis in ipairs(SENT_AXES) do
    if lane[axis .. '_pace'] and lane[axis .. '_pace'] ~= '' and not limited[axis] then change[axis .. '_pace'] = '' end
  end
  local good = math.max(LEAST_GOOD_MS, part_of(limits, GOOD_MS))
  if lane.good_ms ~= good then change.good_ms = good end
end

-- The charged axes of a lease: {axis, units}, requests first.
local function charges_of(lease)
  local found = { { 'requests', UNIT } }
  for axis in pairs(lease.charges or {}) do
    local tokens = axis == 'tokens' and lease.charged.input + lease.charged.output or lease.charged[axis]
    found[#found + 1] = { axis, tokens * UNIT }
  end
  return found
end

-- Charges a claimed call to the buckets of arrivals. Returns whether it may be sent, and for how long from now, in
-- ms; 0 is for ever, where nothing limits the lane. A call larger than a bucket may be sent when the bucket is full,
-- and leaves a debt.
function arrive(key, lease, now)
  local levels, good = {}, nil
  for _, charge in ipairs(charges_of(lease)) do
    local axis, units = charge[1], charge[2]
    local pace, depth, level, at, good_ms = unpack(redis.call('HMGET', key,
      axis .. '_pace', axis .. '_depth', axis .. '_sent', axis .. '_sent_ms', 'good_ms'))
    pace, depth, good = tonumber(pace or ''), tonumber(depth or ''), good or tonumber(good_ms or '')
    if pace and depth then
      level = math.min(depth, level and level + math.max(0, now - at) * pace or depth)
      if level < math.min(units, depth) then return false, 0 end
      levels[#levels + 1] = axis .. '_sent'
      levels[#levels + 1] = string.format('%.0f', level - units)
      levels[#levels + 1] = axis .. '_sent_ms'
      levels[#levels + 1] = string.format('%.0f', math.max(now, tonumber(at or 0)))
    end
  end
  if #levels > 0 then redis.call('HSET', key, unpack(levels)) end
  return true, #levels > 0 and (good or GOOD_MS) or 0
end

-- Refunds units to the bucket of arrivals, up to its depth.
function unsend(lane, change, axis, units)
  local level, depth = change[axis .. '_sent'], lane[axis .. '_depth']
  if level and depth then change[axis .. '_sent'] = math.min(depth, level + units) end
end

-- After a claim that came too late, permits wait for what claims may use: granted sooner they would only come back.
function hold_to_arrivals(lane, change, now)
  for _, axis in ipairs(SENT_AXES) do
    local pace, sent, level = tonumber(lane[axis .. '_pace'] or ''), lane[axis .. '_sent'], change[axis .. '_level']
    if pace and sent and level then
      sent = math.min(lane[axis .. '_depth'], sent + math.max(0, now - lane[axis .. '_sent_ms']) * pace)
      change[axis .. '_level'] = math.min(level, sent)
    end
  end
end

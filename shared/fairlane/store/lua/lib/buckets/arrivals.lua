-- Keeps the calls that reach a provider within the lane's rate and burst, however late workers claim their permits.
-- Permits come from one bucket of each axis (lib/buckets/buckets.lua). Claims are charged to another, somewhat deeper
-- one, whose pace and depth lib/buckets/arrival_bounds.lua notes:
--   <axis>_sent, <axis>_sent_ms    its level in units, and when that was
-- Permits that piled up behind a stall are claimed at once: those beyond the depth are late and are never sent.
-- GIVES: charge_arrival
-- USES: buckets/arrival_constants buckets/token_bucket

-- The charged axes of a lease: {axis, units}, requests first.
local function charges_of(lease)
  local found = { { 'requests', UNIT } }
  for axis in pairs(lease.charges or {}) do
    local tokens = axis == 'tokens' and lease.charged.input + lease.charged.output or lease.charged[axis]
    found[#found + 1] = { axis, tokens * UNIT }
  end
  return found
end

-- Charges a claimed call to the buckets of arrivals. Returns whether it may be sent; for how many ms from now (0: no
-- limit); whether a pause of the lane forbids it; and after how many ms it may be sent, nil if at once. A call larger
-- than a bucket may be sent when the bucket is full, and leaves a debt.
function charge_arrival(key, lease, now)
  local levels, good, hold = {}, nil, nil
  for _, charge in ipairs(charges_of(lease)) do
    local axis, units = charge[1], charge[2]
    local pace, depth, level, at, good_ms, paused, early = unpack(redis.call('HMGET', key,
      axis .. '_pace', axis .. '_depth', axis .. '_sent', axis .. '_sent_ms', 'good_ms', 'paused', 'claim_early_ms'))
    if paused == '1' then return false, 0, true end
    pace, depth, good = tonumber(pace or ''), tonumber(depth or ''), good or tonumber(good_ms or '')
    if pace and depth then
      local ahead = axis == 'requests' and (tonumber(early or '') or 0) * pace or 0
      level = math.min(depth - ahead, level and level + math.max(0, now - at) * pace or depth)
      local missing = math.min(units, depth - ahead) - level
      if missing > 2 * ahead then return false, 0, false end
      if missing > 0 then hold = math.ceil(missing / pace) end
      levels[#levels + 1] = axis .. '_sent'
      levels[#levels + 1] = string.format('%.0f', level - units)
      levels[#levels + 1] = axis .. '_sent_ms'
      levels[#levels + 1] = string.format('%.0f', math.max(now, tonumber(at or 0)))
    end
  end
  if #levels > 0 then redis.call('HSET', key, unpack(levels)) end
  return true, #levels > 0 and (good or GOOD_MS) or 0, false, hold
end

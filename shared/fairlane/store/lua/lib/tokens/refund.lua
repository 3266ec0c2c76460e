-- Refunds on the token axes: a charge becomes the actual usage, as if that had been known when the call started. If the
-- bucket would have been full at a later charge, the rest of a refund is lost; what has spilled there pays a debt.
-- GIVES: true_up_buckets
-- USES: buckets/arrival_true_up buckets/buckets buckets/depth buckets/token_bucket core/time core/wake
--       tokens/amounts tokens/charges tokens/learn_lengths tokens/length_refusals tokens/token_charges
-- NEEDS: KEY.dirty KEY.state ARG.channel

-- Units of charge `number` to refund (to owe, if negative); the headroom of later charges follows.
local function refundable(lane, axis, number, units)
  local key, later = headroom_key(axis), (lane[axis .. '_charges'] or 0) - number
  if later <= 0 or units == 0 then return units end
  local rooms = redis.call('LRANGE', key, -later, -1)
  for i, room in ipairs(rooms) do
    room = tonumber(room)
    rooms[i] = whole(room - units)
    units = math.max(0, room) - math.max(0, room - units)
    if units == 0 then break end
  end
  -- Written back in one step: with a thousand calls in flight, LSET one by one takes most of this script's time.
  redis.call('LTRIM', key, 0, -#rooms - 1)
  append_all(key, rooms)
  return units
end

-- Refunds the request of a permit that was never sent. Claims have buckets of their own, so this lets no more calls
-- through to the provider. The bucket of claims gets only what it cannot have refilled since the claim: a refund of
-- what it has spilled meanwhile would be a second burst.
local function refund_request(lane, limits, lease, change, now)
  for _, bucket in ipairs(buckets_of(lane, limits, now)) do
    if bucket.axis == 'requests' then raise_level(change, bucket, UNIT, now) end
  end
  if lease.sendable then
    local refilled = (now - lease.claimed_ms) * (tonumber(lane.requests_pace or '') or 0)
    refund_arrival(lane, change, 'requests', math.max(0, UNIT - refilled))
  end
  if (lane.day_used or 0) > 0 then change.day_used = lane.day_used - 1 end
  if lane.stop == 'requests' then wake(KEY.dirty, ARG.channel, lease.lane) end
end

-- Learns the depth of the bucket with a learned limit that limits jobs, from a call's outcome.
local function learn_depth(lane, limits, buckets, lease, signal, change)
  for _, bucket in ipairs(buckets) do
    if bucket.axis == lane.stop and not bucket.configured then
      if signal == 'ok' then deepen(change, bucket) end
      local new = signal == 'limited' and lease.n > (lane.sign or 0)
      if new and not excusable(lane, limits, bucket.axis, bucket.level, lease) then flatten(change, bucket) end
    end
  end
end

local function true_up_tokens(lane, limits, lease, signal, used, change, now)
  local roomier = false
  if signal == 'ok' and used and limits.charge ~= 'reserved' then
    local input = used.input >= 0 and charge_of(limits, used, lease.charged).input or -1
    roomier = learn_tokens(lane, change, lease, KEY.state, input, used.output, used.input)
  end
  local buckets = buckets_of(lane, limits, now)
  learn_depth(lane, limits, buckets, lease, signal, change)
  if not lease.charges then return end
  local final = final_charge(limits, lease, signal, used)
  for _, bucket in ipairs(buckets) do
    local axis = bucket.axis
    if lease.charges[axis] then
      local units = (amount_on(axis, lease.charged) - amount_on(axis, final)) * UNIT
      local back = refundable(lane, axis, lease.charges[axis], units)
      back = raise_level(change, bucket, back, now)
      if lease.sendable then refund_arrival(lane, change, axis, back) end
      roomier = roomier or back > 0 and lane.stop == axis
    end
  end
  if roomier and headroom_key(lane.stop) then wake(KEY.dirty, ARG.channel, lease.lane) end
end

-- Trues up the buckets that an attempt was charged to. Unknown amounts stay as they were charged.
function true_up_buckets(lane, limits, lease, signal, used, change, now)
  if lease.guess then change.guesses = math.max(0, (lane.guesses or 0) - 1) end
  if signal == 'unsent' then refund_request(lane, limits, lease, change, now) end
  true_up_tokens(lane, limits, lease, signal, used, change, now)
  if signal == 'unsent' and not lease.sendable then cap_levels_to_arrivals(lane, change, now) end
end

-- Charges on the token axes: a call takes the tokens that it is expected to use when it starts. For each axis a list
-- keeps the headroom of the bucket just before each of the latest charges: how far it was from full, or, negative, how
-- much had spilled since the charge before; lib/tokens/refund.lua needs it.
-- GIVES: headroom_key append_all take_tokens save_buckets
-- USES: buckets/buckets buckets/token_bucket core/time tokens/amounts
-- NEEDS: KEY.headroom_input KEY.headroom_output KEY.headroom_tokens

local HEADROOM_KEPT = 1024 -- charges: more calls than a lane has in flight
local AT_ONCE = 1000 -- values: Lua's stack takes a few thousand

-- The list of a token axis; nil for requests.
function headroom_key(axis)
  if axis == 'tokens' then return KEY.headroom_tokens end
  if axis == 'input' then return KEY.headroom_input end
  if axis == 'output' then return KEY.headroom_output end
end

function append_all(key, values)
  for first = 1, #values, AT_ONCE do
    redis.call('RPUSH', key, unpack(values, first, math.min(first + AT_ONCE - 1, #values)))
  end
end

-- Takes a request and `reserved` tokens from every bucket. Returns the numbers of the charges, by token axis.
function take_tokens(lane, buckets, reserved)
  local numbers
  for _, bucket in ipairs(buckets) do
    local axis = bucket.axis
    if headroom_key(axis) then
      numbers, bucket.rooms = numbers or {}, bucket.rooms or {}
      local room = bucket.full - bucket.level
      bucket.rooms[#bucket.rooms + 1], bucket.spilled = whole(room > 0 and room or -bucket.spilled), 0
      numbers[axis] = (lane[axis .. '_charges'] or 0) + #bucket.rooms
    end
    bucket.level = bucket.level - (axis == 'requests' and 1 or amount_on(axis, reserved)) * UNIT
  end
  return numbers
end

-- Puts the buckets' levels and charges into `change`.
function save_buckets(lane, buckets, change, now)
  for _, bucket in ipairs(buckets) do
    local axis = bucket.axis
    lower_level(change, bucket, bucket.level, math.max(now, lane[axis .. '_ms'] or now))
    if bucket.rooms then
      change[axis .. '_charges'] = (lane[axis .. '_charges'] or 0) + #bucket.rooms
      append_all(headroom_key(axis), bucket.rooms)
      redis.call('LTRIM', headroom_key(axis), -HEADROOM_KEPT, -1)
    end
  end
end

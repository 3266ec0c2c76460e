-- Charges on the token axes: what a call is expected to use is taken when it starts. For each axis a list has, for
-- each of the latest charges, how far the bucket was from full just before it: lib/refund.lua needs it.
-- GIVES: HEADROOM append charged amount_on reserve take keep_taken

HEADROOM = { tokens = KEY.headroom_tokens, input = KEY.headroom_input, output = KEY.headroom_output }
local HEADROOM_KEPT = 1024
local AT_ONCE = 1000 -- what Lua's stack takes at once

function append(key, values)
  for first = 1, #values, AT_ONCE do
    redis.call('RPUSH', key, unpack(values, first, math.min(first + AT_ONCE - 1, #values)))
  end
end

-- What a provider charges for the `used` tokens of a call ({input, output, cached}; -1 is unknown) for which `reserved`
-- was charged when it started: {input, output}. The reference is fairlane/admission/charge.py.
function charged(limits, used, reserved)
  local input, output = reserved.input, reserved.output
  if used.input >= 0 then
    local free = limits.cache_reads ~= 'counted' and math.max(0, used.cached) or 0
    input = math.max(0, used.input - free)
  end
  if used.output >= 0 then
    local burnt = math.ceil(used.output * (limits.output_factor or 1))
    output = limits.charge == 'reserved' and math.max(burnt, output) or burnt
  end
  return { input = input, output = output }
end

-- An amount of {input, output} on one token axis.
function amount_on(axis, tokens)
  if axis == 'tokens' then return tokens.input + tokens.output end
  return tokens[axis]
end

-- What is charged for a job when it starts: shares of its estimates that calls like it have hardly ever exceeded, by
-- lane for the input, by run (its hash at `state`) and kind for the output.
local shares_read = {}
function reserve(lane, limits, entry, state)
  local factor = limits.output_factor or 1
  if limits.charge == 'reserved' then return { input = entry.input, output = math.ceil(entry.output * factor) } end
  local name = state .. ' ' .. entry.kind
  local share = shares_read[name]
  if not share then
    share = tonumber(redis.call('HGET', state, 'share:' .. entry.kind) or 1)
    shares_read[name] = share
  end
  return {
    input = math.ceil(entry.input * (lane.input_share or 1)),
    output = math.ceil(entry.output * share * factor),
  }
end

-- Takes a request and `reserved` tokens from every bucket. Returns the numbers of the charges, by token axis.
function take(lane, buckets, reserved)
  local numbers
  for _, bucket in ipairs(buckets) do
    local axis = bucket.axis
    if HEADROOM[axis] then
      numbers, bucket.rooms = numbers or {}, bucket.rooms or {}
      bucket.rooms[#bucket.rooms + 1] = whole(bucket.full - bucket.level)
      numbers[axis] = (lane[axis .. '_charges'] or 0) + #bucket.rooms
    end
    bucket.level = bucket.level - (axis == 'requests' and 1 or amount_on(axis, reserved)) * UNIT
  end
  return numbers
end

-- Puts what was taken into `change`.
function keep_taken(lane, buckets, change, now)
  for _, bucket in ipairs(buckets) do
    local axis = bucket.axis
    keep_level(change, axis, bucket.level, math.max(now, lane[axis .. '_ms'] or now))
    if bucket.rooms then
      change[axis .. '_charges'] = (lane[axis .. '_charges'] or 0) + #bucket.rooms
      append(HEADROOM[axis], bucket.rooms)
      redis.call('LTRIM', HEADROOM[axis], -HEADROOM_KEPT, -1)
    end
  end
end

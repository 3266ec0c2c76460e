-- Refunds on the token axes: a charge becomes what was used, as if that had been known when the call started. No more
-- comes back than there was headroom before any later charge: the provider's bucket, which charged less, was full
-- there and lost the rest.
-- GIVES: final_charge true_up

local SHARE_QUANTILE, LEAST_STEP, STEADY, LEAST_SHARE = 0.97, 0.05, 10, 0.01
local MOST_INPUT_SHARE = 4 -- characters are a poor measure of tokens, and worse ones exist than English text

-- Stochastic approximation of that quantile (Robbins, Monro 1951) of what calls use of an estimate, after `count` of
-- them: in large steps at first.
local function learnt(share, count, used, estimate, most)
  local step = used > share * estimate and SHARE_QUANTILE or SHARE_QUANTILE - 1
  return math.max(LEAST_SHARE, math.min(most, share + math.max(LEAST_STEP, STEADY / (STEADY + count)) * step))
end

-- Learns from a call both shares that it tells something of. Returns whether one has become smaller.
local function learn_shares(lane, limits, lease, used, change)
  local field, fell = 'share:' .. lease.kind, false
  if used.output >= 0 and lease.output > 0 then
    local share = tonumber(redis.call('HGET', KEY.state, field) or 1)
    local count = redis.call('HINCRBY', KEY.state, 'share_n:' .. lease.kind, 1)
    local now = learnt(share, count, used.output, lease.output, 1)
    redis.call('HSET', KEY.state, field, tostring(now))
    fell = now < share
  end
  if used.input >= 0 and lease.input > 0 then
    local share = lane.input_share or 1
    local input = charged(limits, used, lease.charged).input
    change.input_share_n = (lane.input_share_n or 0) + 1
    change.input_share = learnt(share, change.input_share_n, input, lease.input, MOST_INPUT_SHARE)
    fell = fell or change.input_share < share
  end
  return fell
end

-- Units that may come back (or are owed, if negative) of charge `number`; the headroom of later charges follows.
local function come_back(lane, axis, number, units)
  local key, later = HEADROOM[axis], (lane[axis .. '_charges'] or 0) - number
  if later <= 0 or units == 0 then return units end
  local rooms = redis.call('LRANGE', key, -later, -1)
  for i, room in ipairs(rooms) do
    room = tonumber(room)
    if units > 0 then units = math.min(units, room) end
    rooms[i] = whole(room - units)
    if units == 0 then break end
  end
  -- Written back at one stroke: with a thousand calls in flight, LSET one by one takes most of this script's time.
  redis.call('LTRIM', key, 0, -#rooms - 1)
  append(key, rooms)
  return units
end

-- What the provider has charged in the end for an attempt: nothing for what was never sent (`used` is nil) and for
-- what it turned away, unless it tells of tokens all the same.
function final_charge(limits, lease, signal, used)
  local free = signal == 'limited' or signal == 'overloaded' or signal == 'refused'
    or signal == 'answered' and used and used.input < 0 and used.output < 0
  if free or not used then return { input = 0, output = 0 } end
  return charged(limits, used, lease.charged)
end

-- Applies an attempt's end to the buckets that it was charged to. What is not known stands as it was charged.
function true_up(lane, limits, lease, signal, used, change, now)
  if not lease.charges then return end
  local roomier = false
  if signal == 'ok' and used and limits.charge ~= 'reserved' then
    roomier = learn_shares(lane, limits, lease, used, change)
  end
  local final = final_charge(limits, lease, signal, used)
  for _, bucket in ipairs(buckets_of(lane, limits, now)) do
    local axis = bucket.axis
    if lease.charges[axis] then
      local units = (amount_on(axis, lease.charged) - amount_on(axis, final)) * UNIT
      local back = come_back(lane, axis, lease.charges[axis], units)
      keep_level(change, axis, math.min(bucket.level + back, bucket.full), now)
      roomier = roomier or back > 0 and lane.stop == axis
    end
  end
  if roomier and HEADROOM[lane.stop] then wake(KEY.dirty, ARG.channel, lease.lane) end
end

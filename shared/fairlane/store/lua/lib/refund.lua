-- Refunds on the token axis: a charge becomes what was used, as if that had been known when the call started. No more
-- comes back than there was headroom before any later charge: the provider's bucket, which charged less, was full
-- there and lost the rest.
local SHARE_QUANTILE, SHARE_STEP = 0.97, 0.05
local AT_ONCE = 1000 -- what Lua's stack takes at once

-- Stochastic approximation of that quantile (Robbins, Monro 1951), from the whole estimate downwards.
local function learn_share(lane, lease, used, change)
  if used < 0 or lease.tokens == 0 then return end
  local share = lane.token_share or 1
  local step = used > share * lease.tokens and SHARE_QUANTILE or SHARE_QUANTILE - 1
  change.token_share = math.max(0.01, math.min(1, share + SHARE_STEP * step))
end

-- Units that may come back (or are owed, if negative) of charge `number`; the headroom of later charges follows.
local function come_back(lane, number, units)
  local later = (lane.charges or 0) - number
  if later <= 0 or units == 0 then return units end
  local rooms = redis.call('LRANGE', KEY.headroom, -later, -1)
  for i, room in ipairs(rooms) do
    room = tonumber(room)
    if units > 0 then units = math.min(units, room) end
    rooms[i] = whole(room - units)
    if units == 0 then break end
  end
  -- Written back at one stroke: with a thousand calls in flight, LSET one by one takes most of this script's time.
  redis.call('LTRIM', KEY.headroom, 0, -#rooms - 1)
  for first = 1, #rooms, AT_ONCE do
    redis.call('RPUSH', KEY.headroom, unpack(rooms, first, math.min(first + AT_ONCE - 1, #rooms)))
  end
  return units
end

-- Applies an attempt's end to the bucket. `used` is -1 where it is not known: then the charge stands.
local function true_up(lane, limits, lease, signal, used, change, now)
  local pace = token_pace(limits)
  if not pace or not lease.charge then return end
  if signal == 'ok' then learn_share(lane, lease, used, change) end
  local free = signal == 'limited' or signal == 'overloaded' or signal == 'refused' or signal == 'answered' and used < 0
  local units = (free and lease.charged or used >= 0 and lease.charged - used or 0) * UNIT
  local back = come_back(lane, lease.charge, units)
  if back > 0 and lane.stop == 'tokens' then wake(KEY.dirty, ARG.channel, lease.lane) end
  local level = refill(lane.token_level, lane.token_ms, pace, burst_of(limits), now) + back
  change.token_level, change.token_ms = math.min(level, capacity(pace, burst_of(limits))), now
end

-- Charges on the token axis: what a call is expected to use is taken when it starts. KEY.headroom has, for each of
-- the latest charges, how far the bucket was from full just before it: lib/refund.lua needs it.
local HEADROOM_KEPT = 1024

-- What is charged for an estimate: the share of their estimates that calls of this lane have hardly ever exceeded.
local function reserved(lane, estimate)
  return math.ceil(estimate * (lane.token_share or 1))
end

-- Notes a charge that leaves the bucket `room` units from full before it. Returns its number on the lane.
local function note_charge(lane, room)
  lane.charges = (lane.charges or 0) + 1
  redis.call('RPUSH', KEY.headroom, whole(room))
  redis.call('LTRIM', KEY.headroom, -HEADROOM_KEPT, -1)
  return lane.charges
end

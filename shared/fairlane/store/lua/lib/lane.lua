-- A lane as a table: its state hash, its limits, and the questions admission asks of both.
-- GIVES: AXES STATED SPREAD_MS read edited write allowed buckets_of keep_level empty today shut

-- Axes with a bucket each: `<axis>_level` units at `<axis>_ms`. The axis `day` is a count, `day_used` until
-- `day_until_ms`; its `day_rate` is what was learned, a day.
AXES = { 'requests', 'tokens', 'input', 'output' }
STATED = {
  requests = 'requests_per_minute', tokens = 'tokens_per_minute', input = 'input_tokens_per_minute',
  output = 'output_tokens_per_minute', day = 'requests_per_day',
}
local DAY_MS = 86400000

-- Requests that leave at once reach the provider spread over this long, so that much of the burst is held back.
SPREAD_MS = 100
local LEARNED_BURST_MS = 250

function read(key)
  local flat, row = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do row[flat[i]] = tonumber(flat[i + 1]) or flat[i + 1] end
  return row
end

-- A lane that is being changed: what is set in it is what `write` stores, all else is read through.
function edited(lane)
  return setmetatable({}, { __index = lane })
end

function write(key, row)
  local flat = {}
  for name, value in pairs(row) do
    flat[#flat + 1] = name
    flat[#flat + 1] = type(value) == 'number' and (value % 1 == 0 and whole(value) or tostring(value)) or value
  end
  if #flat > 0 then redis.call('HSET', key, unpack(flat)) end
end

-- What an axis allows a minute ('day': a day); nil is no limit. The operator's number, where 0 is never limited, is a
-- ceiling: what was learned lowers it, unless it is exact. The second result tells whether it is the operator's.
function allowed(lane, limits, axis)
  local stated = limits[STATED[axis]]
  if stated == 0 then return nil end
  if stated and limits.exact == 1 then return stated, true end
  local learned = axis == 'day' and lane.day_rate or axis ~= 'day' and believed(lane, axis, stated)
  if stated and (not learned or stated <= learned) then return stated, true end
  return learned or nil, false
end

local function burst_of(limits)
  return math.max(0, (limits.burst_ms or 1000) - SPREAD_MS)
end

-- What an axis may save of a rate that nobody has stated: next to nothing, since how deep the provider's bucket is
-- cannot be known, unless its headers have shown how much is left in it.
local function learned_burst(lane, limits, axis, per_minute)
  local shown_ms = (lane[axis .. '_fullest'] or 0) / per_minute * 60000 - SPREAD_MS
  return math.min(burst_of(limits), math.max(LEARNED_BURST_MS, shown_ms))
end

-- The buckets that limit a lane, in the order of AXES and brought up to now: {axis, pace, full, level}, in units.
function buckets_of(lane, limits, now)
  local found, share = {}, ramp(lane, now)
  for _, axis in ipairs(AXES) do
    local per_minute, stated = allowed(lane, limits, axis)
    if per_minute then
      local earns = pace_of(axis == 'requests' and per_minute * share or per_minute)
      local burst = share == 1 and stated and burst_of(limits) or learned_burst(lane, limits, axis, per_minute)
      local level = refill(lane[axis .. '_level'], lane[axis .. '_ms'], earns, burst, now)
      local from_ms = math.max(now, lane[axis .. '_ms'] or now) -- nothing is earned before
      found[#found + 1] = { axis = axis, pace = earns, full = capacity(earns, burst), level = level, from_ms = from_ms }
    end
  end
  return found
end

-- Puts a bucket's level into `change`.
function keep_level(change, axis, level, now)
  change[axis .. '_level'], change[axis .. '_ms'] = level, now
end

-- Empties all buckets in `change`, so that nothing bursts; what is owed stays owed.
function empty(lane, limits, change, now)
  local levels = {}
  for _, bucket in ipairs(buckets_of(lane, limits, now)) do levels[bucket.axis] = bucket.level end
  for _, axis in ipairs(AXES) do
    keep_level(change, axis, math.min(0, change[axis .. '_level'] or levels[axis] or 0), now)
  end
end

-- Requests started in the present day, and when it ends: at midnight UTC, or where a hint has moved `day_until_ms`, at
-- that time of every day.
function today(lane, now)
  local ends = lane.day_until_ms or 0
  if now < ends then return lane.day_used or 0, ends end
  return 0, ends + (math.floor((now - ends) / DAY_MS) + 1) * DAY_MS
end

-- What keeps the whole lane shut: its reason and when to ask again (0: not before something happens).
function shut(lane, now)
  if lane.paused == 1 then return 'paused', 0 end
  if lane.parked then return 'parked', 0 end
  if lane.circuit == 'half_open' then return 'probing', 0 end
  if lane.circuit == 'open' and now < lane.open_ms then return 'circuit', lane.open_ms end
  if lane.blocked_ms and now < lane.blocked_ms then return 'blocked', lane.blocked_ms end
  return nil
end

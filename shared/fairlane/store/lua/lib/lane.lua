-- A lane as a table: its state hash, its limits, and the questions admission asks of both.

-- Requests that leave at once reach the provider spread over this long, so that much of the burst is held back.
local SPREAD_MS = 100

local function read(key)
  local flat, row = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do row[flat[i]] = tonumber(flat[i + 1]) or flat[i + 1] end
  return row
end

local function write(key, row)
  local flat = {}
  for name, value in pairs(row) do
    flat[#flat + 1] = name
    flat[#flat + 1] = type(value) == 'number' and (value % 1 == 0 and whole(value) or tostring(value)) or value
  end
  if #flat > 0 then redis.call('HSET', key, unpack(flat)) end
end

-- The pace of requests: the operator's number, where 0 is no limit, else what 429s have taught; nil is no limit.
local function request_pace(lane, limits)
  if limits.requests_per_minute == 0 then return nil end
  local per_minute = limits.requests_per_minute or lane.rate
  return per_minute and pace_of(per_minute)
end

local function token_pace(limits)
  if (limits.tokens_per_minute or 0) == 0 then return nil end
  return pace_of(limits.tokens_per_minute)
end

local function burst_of(limits)
  return math.max(0, (limits.burst_ms or 1000) - SPREAD_MS)
end

-- Both buckets, brought up to now. A level is nil where its axis is not limited.
local function levels(lane, limits, now)
  local burst, requests, tokens = burst_of(limits), request_pace(lane, limits), token_pace(limits)
  return requests and refill(lane.request_level, lane.request_ms, requests, burst, now),
    tokens and refill(lane.token_level, lane.token_ms, tokens, burst, now)
end

-- Empties both buckets in `change`, so that nothing bursts; what is owed stays owed.
local function empty(lane, limits, change, now)
  local requests, tokens = levels(lane, limits, now)
  change.request_level, change.request_ms = math.min(0, requests or 0), now
  change.token_level, change.token_ms = math.min(0, change.token_level or tokens or 0), now
end

-- What keeps the whole lane shut: its reason and when to ask again (0: not before something happens).
local function shut(lane, now)
  if lane.paused == 1 then return 'paused', 0 end
  if lane.parked then return 'parked', 0 end
  if lane.circuit == 'half_open' then return 'probing', 0 end
  if lane.circuit == 'open' and now < lane.open_ms then return 'circuit', lane.open_ms end
  if lane.blocked_ms and now < lane.blocked_ms then return 'blocked', lane.blocked_ms end
  return nil
end

-- The deployment's time in ms, which never goes back, whatever Redis's TIME does. Each bid for leadership writes the
-- hash `clock`, which fairlane.core.clock reads, too:
--   seen_ms              the time at the latest bid; it is never earlier than that
--   ahead_ms, from_ms    how far it was ahead of TIME right after TIME's latest step back, and TIME then
-- GIVES: clock ahead_ms note_time whole argument_of

local CATCH_UP = 100 -- while it is ahead it runs 1 % slow, until it is TIME again: rates stay below their limits

-- TIME, read once a script, the deployment's time by how far it is ahead, and that of the latest bid.
local function read_time(now_ms, key)
  local ms = tonumber(now_ms) or CALL.redis_ms
  if not ms then
    local t = redis.call('TIME')
    ms = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
    CALL.redis_ms = ms
  end
  local seen, ahead, from = unpack(redis.call('HMGET', key, 'seen_ms', 'ahead_ms', 'from_ms'))
  seen, ahead = tonumber(seen or 0), tonumber(ahead or 0)
  if ahead > 0 then ahead = ahead - math.floor(math.max(0, ms - tonumber(from)) / CATCH_UP) end
  return ms, ms + math.max(0, ahead), seen
end

-- The time now. `now_ms` is TIME under a manual clock, and '' else.
function clock(now_ms, key)
  local ms, now, seen = read_time(now_ms, key)
  now = math.max(now, seen)
  CALL.ahead_ms = now - ms
  return now
end

-- How far the time that `clock` has given is ahead of TIME. Days and months of the calendar are TIME's.
function ahead_ms()
  return CALL.ahead_ms or 0
end

-- Whole numbers beyond 10^14 lose digits in Lua's own conversion.
function whole(n)
  return string.format('%.0f', n)
end

-- A value as an argument of a command. Redis itself writes whole numbers below 10^15 in full: the text that a script
-- makes of one costs more than half of the time that it takes to store it.
function argument_of(value)
  if type(value) ~= 'number' then return value end
  if value % 1 ~= 0 then return value .. '' end
  return value < 1e15 and value > -1e15 and value or whole(value)
end

-- Notes the time at a bid. Returns it, and by how much TIME has stepped back behind the bid before (0: it has not).
function note_time(now_ms, key)
  local ms, now, seen = read_time(now_ms, key)
  if now >= seen then
    redis.call('HSET', key, 'seen_ms', whole(now))
    return now, 0
  end
  redis.call('HSET', key, 'ahead_ms', whole(seen - ms), 'from_ms', whole(ms))
  return seen, seen - now
end

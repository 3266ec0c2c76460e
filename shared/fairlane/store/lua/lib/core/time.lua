-- The deployment's time in ms, which never goes back, even if Redis' TIME does. Each bid for leadership writes the hash
-- `clock`, which fairlane.core.clock reads, too:
--   seen_ms              the time at the latest bid; it is never earlier than that
--   ahead_ms, from_ms    how far it was ahead of TIME right after TIME's latest step back, and TIME then
-- GIVES: clock ahead_ms note_time whole argument_of

local CATCH_UP = 100 -- divisor: while it is ahead of TIME it runs 1 % slower, so that rates stay below their limits

-- Returns TIME (read once a script), the deployment's time as TIME and its lead give it, and the time of the latest
-- bid.
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

-- A whole number as text: Lua's own conversion loses digits beyond 10^14.
function whole(n)
  return string.format('%.0f', n)
end

-- A value as an argument of a command. Redis writes whole numbers below 10^15 in full by itself. Converting one in the
-- script takes more than half as long as storing it.
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

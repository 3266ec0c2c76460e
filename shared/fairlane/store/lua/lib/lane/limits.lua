-- The limits in force of a lane, and what shuts the whole lane.
-- GIVES: allowed day_use shut_reason
-- USES: lane/state rate/rate

local DAY_MS = 86400000

-- The limit in force of an axis, a minute ('day': a day); nil without a limit. A configured limit is an upper bound (0:
-- never limited) which a learned one lowers, unless it is exact. Also returns whether the configured limit is in force.
function allowed(lane, limits, axis)
  local configured = limits[CONFIGURED[axis]]
  if configured == 0 then return nil end
  if configured and limits.exact == 1 then return configured, true end
  local learned = axis == 'day' and lane.day_rate or axis ~= 'day' and learned_rate(lane, axis, configured)
  if configured and (not learned or configured <= learned) then return configured, true end
  return learned or nil, false
end

-- Returns the requests started in the present day, and when it ends: at midnight UTC, or at the time of day that a hint
-- has set in `day_until_ms`. If the provider's own day is used up, also returns when that ends.
function day_use(lane, now)
  local ends, shut_ms = lane.day_until_ms or 0, lane.day_shut_ms or 0
  shut_ms = now < shut_ms and shut_ms or nil
  if now < ends then return lane.day_used or 0, ends, shut_ms end
  return 0, ends + (math.floor((now - ends) / DAY_MS) + 1) * DAY_MS, shut_ms
end

-- When a call may try whether the lane must wait as long as a 429 named (refusal/wait_tries); nil if none may.
local function next_try(lane)
  local try_ms = known(lane.wait_try_ms)
  if not try_ms or not known(lane.answered_n) then return nil end
  try_ms = math.max(try_ms, lane.firm_ms or 0, lane.busy_ms or 0)
  return try_ms < lane.blocked_ms and try_ms or nil
end

-- Returns what shuts the whole lane, when to request permits again (0: when woken), and when a call may try the wait,
-- if one may.
function shut_reason(lane, now)
  if lane.paused == 1 then return 'paused', 0 end
  if lane.parked and lane.circuit ~= 'half-open' then
    local retry_ms = known(lane.retry_ms)
    if not retry_ms or now < retry_ms then return 'parked', retry_ms or 0 end
  end
  if lane.circuit == 'half-open' then
    local overdue_ms = known(lane.overdue_ms)
    if not overdue_ms or now < overdue_ms then return 'probing', overdue_ms or 0 end
  end
  if lane.circuit == 'open' and now < lane.open_ms then
    if known(lane.held_until_ms) then return 'held', lane.open_ms end
    return 'circuit', lane.open_ms
  end
  if lane.blocked_ms and now < lane.blocked_ms then return 'blocked', lane.blocked_ms, next_try(lane) end
  return nil
end

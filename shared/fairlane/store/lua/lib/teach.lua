-- What an attempt's end says of its lane. `signal` is one of
--   ok | answered (refused for its own fault) | limited | overloaded | broken | refused | none.

local CIRCUIT_FAILURES, CIRCUIT_APART_MS, CIRCUIT_OPEN_MS = 5, 200, 30000
local CUT, COOL_DOWN_MS = 0.5, 5000
local FLOOR_PER_MINUTE, CEILING_PER_MINUTE, MOST_GROWTH = 1, 600000, 0.25
local BACK_OFF_MS, BACK_OFF_MOST_MS = 100, 5000

-- Shuts the lane for a moment that doubles while attempts started after the last such sign meet it again and none is
-- answered in between. Refusals come back at once and answers take their time, so an answer counts whenever it began.
local function back_off(lane, lease, change, now)
  if lease.granted_ms < (lane.signed_ms or 0) then return end
  change.signed_ms, change.streak = now, (lane.streak or 0) + 1
  local wait = math.min(BACK_OFF_MOST_MS, BACK_OFF_MS * 2 ^ math.min(change.streak - 1, 16))
  change.blocked_ms = math.max(lane.blocked_ms or 0, now + wait)
end

-- AIMD: one cut an epoch, never within the cool-down, on a lane whose rate nobody has stated.
local function cut(lane, limits, lease, change, now)
  if limits.requests_per_minute or lease.epoch ~= (lane.epoch or 0) then return false end
  if now < (lane.cut_ms or -COOL_DOWN_MS) + COOL_DOWN_MS then return false end
  local admitted, span_ms = (lane.granted or 0) - (lane.past or 0), math.max(now - (lane.past_ms or now), 1000)
  local seen = lane.rate or math.max(admitted, 1) * 60000 / span_ms
  change.rate = math.max(FLOOR_PER_MINUTE, seen * CUT)
  change.epoch, change.cut_ms = (lane.epoch or 0) + 1, now
  change.request_level, change.request_ms = 0, now
  return true
end

-- Additive increase of 1/rate a success (rate in requests a second): one more request a second each second, only
-- while the rate is what holds jobs back and only on successes of this epoch. On a slow lane 1/rate is a multiple of
-- the rate itself, so a share of the rate bounds it.
local function grow(lane, limits, lease, change)
  if limits.requests_per_minute or not lane.rate or lease.epoch ~= lane.epoch or lane.stop ~= 'requests' then return end
  local more = math.min(60 * 60 / lane.rate, lane.rate * MOST_GROWTH)
  change.rate = math.min(CEILING_PER_MINUTE, lane.rate + more)
end

local function open_circuit(change, now)
  change.circuit, change.open_ms, change.failures = 'open', now + CIRCUIT_OPEN_MS, 0
end

-- Failures count while their attempts started apart in time: one dropped link with fifty calls on it is one. Those
-- that started before the circuit opened say nothing new.
local function count_failure(lane, lease, change, now)
  if (lane.circuit or 'closed') ~= 'closed' then return end
  if lease.granted_ms < (lane.failed_ms or -CIRCUIT_APART_MS) + CIRCUIT_APART_MS then return end
  change.failures, change.failed_ms = (lane.failures or 0) + 1, lease.granted_ms
  if change.failures >= CIRCUIT_FAILURES then open_circuit(change, now) end
end

local function end_probe(lane, limits, lease, signal, change, now)
  if not lease.probe then return end
  if signal == 'broken' then
    open_circuit(change, now)
  elseif signal == 'none' then
    change.circuit, change.open_ms = 'open', now
  else
    change.circuit, change.failures, change.failed_ms = 'closed', 0, now
    empty(lane, limits, change, now)
  end
end

-- Applies one report to KEY.lane. `used` is -1 where the provider did not say. Returns what to tell the log.
local function teach(lease, signal, used, retry_after_ms, reason, now)
  local lane, limits, change, news = read(KEY.lane), read(KEY.limits), {}, ''
  true_up(lane, limits, lease, signal, used, change, now)
  if signal == 'ok' or signal == 'answered' then
    if lease.granted_ms >= (lane.failed_ms or 0) then change.failures = 0 end
    change.streak = 0
    if signal == 'ok' then grow(lane, limits, lease, change) end
  elseif signal == 'limited' then
    if retry_after_ms <= 0 then back_off(lane, lease, change, now) end
    if cut(lane, limits, lease, change, now) then news = 'cut' end
  elseif signal == 'overloaded' then
    back_off(lane, lease, change, now)
  elseif signal == 'broken' then
    count_failure(lane, lease, change, now)
  end
  end_probe(lane, limits, lease, signal, change, now)
  news = change.circuit or news
  -- What was under way when an operator resumed the lane speaks of the state before.
  if signal == 'refused' and lease.granted_ms >= (lane.resumed_ms or 0) then
    if not lane.parked then news = 'parked' end
    change.parked = reason
  end
  if retry_after_ms > 0 then
    if news == '' and now >= (lane.blocked_ms or 0) then news = 'blocked' end
    change.blocked_ms = math.max(change.blocked_ms or lane.blocked_ms or 0, now + retry_after_ms)
  end
  change['seen_' .. signal] = (lane['seen_' .. signal] or 0) + 1
  write(KEY.lane, change)
  if lease.probe then wake(KEY.dirty, ARG.channel, lease.lane) end
  return news
end

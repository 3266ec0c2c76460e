-- What an attempt's end says of its lane. `signal` is one of
--   ok | answered (refused for its own fault) | limited | overloaded | broken | refused | none.
-- GIVES: teach

local BUSY_MS, BUSY_MOST_MS = 100, 5000

-- Shuts the lane of an overloaded provider for a moment that doubles while attempts started after the last such sign
-- meet it again and none is answered in between. Its rate does not grow until one succeeds.
local function back_off(row, lease, now)
  row.proved = 0
  if lease.granted_ms < (row.signed_ms or 0) then return end
  row.signed_ms, row.streak = now, (row.streak or 0) + 1
  local wait = math.min(BUSY_MOST_MS, BUSY_MS * 2 ^ math.min(row.streak - 1, 16))
  row.blocked_ms = math.max(row.blocked_ms or 0, now + wait)
end

-- A call that the provider answered.
local function served(row, limits, lease, signal, used, now)
  if lease.granted_ms >= (row.failed_ms or 0) then row.failures = 0 end
  row.streak = 0
  served_at(row, lease)
  if signal ~= 'ok' then return end
  if lease.n > (row.sign or 0) then row.proved = 1 end
  start_faster(row, limits, lease, now)
  watch_latency(row, lease, used, now)
end

-- A 429. One that is for the day or for a place leaves the rate alone, and so does one on an axis that the operator
-- knows exactly: that lane only pauses. Where the rate is never limited, it is for a place.
local function limited(row, limits, lease, hints, retry_after_ms, now)
  if retry_after_ms > 0 then row.blocked_ms = math.max(row.blocked_ms or 0, now + retry_after_ms) end
  if hints.exhausted == 'day' then return '' end
  local buckets = buckets_of(row, limits, now)
  local axis, level = refused_axis(buckets, hints.exhausted)
  if hints.exhausted == 'concurrency' then return refused_place(row, lease) and 'cut' or '' end
  local new = lease.n > (row.sign or 0)
  if new and axis == 'requests' and places_limited(row) and not refutes_places(row, lease, now) then
    return refused_place(row, lease) and 'cut' or ''
  end
  local stated = limits[STATED[axis]]
  if stated == 0 or stated and limits.exact == 1 then
    if retry_after_ms <= 0 then back_off(row, lease, now) end
    if stated == 0 then return refused_place(row, lease) and 'cut' or '' end
    if new then row.sign = row.granted end
    return refused_at(row, lease, new) and 'cut' or ''
  end
  local rate = allowed(row, limits, axis) or rate_of_use(row, axis)
  local starting = axis == 'requests' and not stated and not known(row.requests_told)
  local cut = refused(row, axis, rate, starting, level, lease, retry_after_ms, now)
  local by_places = axis == 'requests' and not windowed(row, axis) and refused_at(row, lease, cut)
  if by_places then unlearn_rate(row, limits) end
  return cut and 'cut' or ''
end

-- Makes what was spent what the provider has charged, and what a team is charged its share of that.
local function correct_spending(row, limits, lease, signal, used, now)
  local final = final_charge(limits, lease, signal, used)
  for _, kind in ipairs({ 'input', 'output' }) do
    local off = final[kind] - lease.charged[kind]
    if off ~= 0 then row['spent_' .. kind] = (row['spent_' .. kind] or 0) + off end
  end
  settle_share(row, limits, lease, final, KEY.state, now)
end

-- Applies one report to KEY.lane. `used` is {input, output, cached} as the provider counted, -1 where it did not say,
-- and nil where the attempt was never sent. Returns what to tell the log.
function teach(lease, signal, used, retry_after_ms, told, reason, now)
  local lane, limits, news = read(KEY.lane), read(KEY.limits), ''
  local row = edited(lane)
  local hints = told ~= '' and cjson.decode(told) or {}
  row['seen_' .. signal] = (lane['seen_' .. signal] or 0) + 1
  true_up(lane, limits, lease, signal, used, row, now)
  correct_spending(row, limits, lease, signal, used, now)
  if learn_hints(row, hints, lease, now) then news = 'shared' end
  if signal == 'ok' or signal == 'answered' then
    served(row, limits, lease, signal, used, now)
  elseif signal == 'limited' then
    news = limited(row, limits, lease, hints, retry_after_ms, now)
  elseif signal == 'overloaded' then
    back_off(row, lease, now)
  elseif signal == 'broken' then
    count_failure(row, lease, now)
  end
  end_probe(row, limits, lease, signal, now)
  news = rawget(row, 'circuit') or news
  -- What was under way when an operator resumed the lane speaks of the state before.
  if signal == 'refused' and lease.granted_ms >= (lane.resumed_ms or 0) then
    if not lane.parked then news = 'parked' end
    row.parked = reason
  end
  if retry_after_ms > 0 then
    if news == '' and now >= (lane.blocked_ms or 0) then news = 'blocked' end
    row.blocked_ms = math.max(row.blocked_ms or 0, now + retry_after_ms)
  end
  write(KEY.lane, row)
  if lease.probe then wake(KEY.dirty, ARG.channel, lease.lane) end
  return news
end

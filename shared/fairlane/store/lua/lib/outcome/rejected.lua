-- What a lane learns from a rejected call: a 429, or an overloaded provider.
-- GIVES: back_off rejected
-- USES: circuit/circuit_constants concurrency/concurrency_detector concurrency/concurrency_trial lane/limits
--       lane/state rate/lift rate/rate rate/slow_start refusal/refusal refusal/refused_axis
--       reported/window_detector tokens/length_refusals

-- Blocks the lane of an overloaded provider for a moment. The moment doubles with each overload of a call that started
-- after the last one, and four answers halve it: a provider that fails every second call is asked less often. The
-- rate does not grow until an attempt succeeds.
function back_off(row, lease, now)
  row.proved = 0
  if lease.granted_ms < (row.signed_ms or 0) then return end
  row.signed_ms, row.streak = now, (row.streak or 0) + 1
  local wait = math.min(BUSY_MOST_MS, BUSY_MS * 2 ^ math.min(row.streak - 1, 16))
  row.busy_ms = now + wait
  row.blocked_ms = math.max(row.blocked_ms or 0, row.busy_ms)
end

-- Backs off after a 429 that lowers nothing and names no wait.
local function wait_unasked(row, lease, now)
  if lease.asked_ms > 0 then return end
  back_off(row, lease, now)
  row.busy_ms = 0
end

-- Handles a 429 on an axis whose limit is configured as exact, or as never limited (0): then concurrency was the limit,
-- and the rate does not change.
local function rejected_on_known(row, lease, configured, new, as_answered, now)
  wait_unasked(row, lease, now)
  if configured == 0 then return not as_answered and concurrency_refused(row, lease) and 'cut' or '' end
  if new then row.sign = row.granted end
  return suspects_concurrency(row, lease, new) and 'cut' or ''
end

-- Handles a 429. The rate stays if a day's limit, a quota or a concurrency limit is the cause; a limit on growth has
-- already lowered it (refusal/growth).
function rejected(row, limits, lease, hints, wait_ms, now)
  row.rejected_ms = now
  if wait_ms > 0 then row.blocked_ms = math.max(row.blocked_ms or 0, now + wait_ms) end
  if lease.of_growth or hints.exhausted == 'day' or hints.exhausted == 'quota' then return '' end
  local axis, level, shown = refused_axis(row, limits, hints, lease, now)
  if hints.exhausted == 'concurrency' then
    -- If no other call was in flight, other clients have taken all places, and no narrower window helps.
    if lease.inflight < 2 then wait_unasked(row, lease, now) end
    local named = hints.concurrency and hints.concurrency[1] or 0
    return concurrency_refused(row, lease, named > 0 and named or nil) and 'cut' or ''
  end
  local new = lease.n > (row.sign or 0)
  local may_be_places = axis == 'requests' and not shown
  local as_answered = lease.asked_ms > 0 and wait_ms == 0 and lease.inflight <= (row.through or 0)
  local met = new and may_be_places and not as_answered and met_the_window(row, lease)
  if met and not refutes_concurrency(row, lease, now) then
    return concurrency_refused(row, lease) and 'cut' or ''
  end
  local configured = limits[CONFIGURED[axis]]
  if configured == 0 or configured and limits.exact == 1 then
    return rejected_on_known(row, lease, configured, new, as_answered, now)
  end
  if excusable(row, limits, axis, level, lease) then
    excuse(row, axis, level, lease, wait_ms, now)
    return ''
  end
  if new then row[axis .. '_by_header'] = shown and 1 or 0 end
  row.shown_then = shown and 1 or 0
  local rate = allowed(row, limits, axis) or rate_of_use(row, axis)
  local _, lifting = lifted(row, axis, known(row[axis .. '_reported']) or 0)
  local starting = axis == 'requests' and not configured and (lifting or not known(row.requests_reported))
  local unclear = not hints.exhausted or hints.exhausted == 'requests' -- many servers name requests in any 429
  lease.may_be_chance = may_be_places and unclear and (wait_ms == 0 or (row.wait_odds or 0) > 0)
  local cut = learn_refusal(row, limits, axis, rate, starting, level, lease, wait_ms, now)
  may_be_places = may_be_places and not known(row.check_rate) and not has_window(row, axis)
  if may_be_places and suspects_concurrency(row, lease, cut) then forget_rate(row, limits) end
  return cut and 'cut' or ''
end

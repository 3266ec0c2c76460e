-- Learns from a 429, with one cut per epoch: calls that were granted before the lane saw the last 429 show nothing new
-- if they are rejected, too. `sign` is the last permit granted in the previous epoch. If the first call after it is
-- rejected as well, the provider still shuts the lane. If a later one is, the lane had opened in between.
-- GIVES: learn_refusal
-- USES: buckets/buckets estimate/limit_estimator lane/counts lane/state rate/constants rate/refusal_budget
--       refusal/by_chance refusal/epoch refusal/patience refusal/reopening reported/window_detector

-- Corrects the counts after a 429 that is reported after that of a later call, whose counts included this call.
-- Counts of tokens are corrected already (lib/outcome/spending.lua).
local function uncount(row, lease)
  local axis = row.refused_on
  if axis ~= 'requests' or lease.n >= row.refused_n then return end
  if known(row.shut) then
    row.first, row.last = row.first - 1, row.last - 1
  else
    row.requests_open = (row.requests_open or 0) - 1
  end
end

-- Whether a rejected call started together with the first one since the last 429, which may be rejected, too.
local function started_with_first(row, lease)
  local first_ms = known(row.after_ms)
  return first_ms and lease.granted_ms - first_ms <= OVERTAKEN * row.refusal_ms
end

-- Learns from a 429 on `axis`, whose rate was `rate` a minute, in slow start if `starting`, and whose bucket held
-- `level`. Returns whether it began an epoch.
function learn_refusal(row, limits, axis, rate, starting, level, lease, retry_after_ms, now)
  local took_ms = math.min(LONG_REFUSAL_MS, now - lease.granted_ms) -- a report may have waited for Redis
  row.refusal_ms = 0.8 * (row.refusal_ms or 100) + 0.2 * took_ms
  if lease.may_be_chance and by_chance(row, limits, lease, rate, now) then return false end
  if lease.n <= (row.sign or 0) then
    count_cost(row, axis, false)
    uncount(row, lease)
    return false
  end
  local est_then = known(row[axis .. '_est']) or rate
  local still = known(row.shut) and (lease.n == row.sign + 1 or started_with_first(row, lease))
  if still then axis = row.shut elseif known(row.shut) then learn_opening(row, limits, now) end
  row.last_ms, row.last = lease.granted_ms, admitted_before(row, axis, lease)
  if still then
    row.refusals, row.crowd = row.refusals + 1, lease.inflight
    count_cost(row, axis, false)
    miss_boundary(row, axis, lease.granted_ms)
  else
    count_cost(row, axis, true)
    begin_epoch(row, limits, axis, rate, est_then, starting, lease, now)
  end
  row.sign, row.after_ms, row.refused_n, row.refused_on = row.granted, '', lease.n, axis
  local again = try_again_ms(row, axis, retry_after_ms, now)
  row.blocked_ms = math.max(row.blocked_ms or 0, again)
  lower_level(row, { axis = axis, level = level }, 0, earns_from(row, axis, now))
  return not still
end

-- Keeps a lane within a quota that is reported without its period: X-RateLimit-Remaining and X-RateLimit-Reset without
-- a policy, as most rate limiters of web servers send them. Until it renews, the lane starts no more calls than are
-- left. It learns their rate as without headers.
--   quota_n, quota_left, quota_until_ms   the latest permit that reported it, the calls left then, and when it renews
--   quota_unsent                          calls that were never sent, by then
--   quota_end_ms, quota_fell, quota_most  its present end, by how many calls it fell until then, the most that was left
--   quota_full                            the most that was left before the previous end
--   quota_proved            1 once a call beyond it met a 429, -1 once calls beyond it proved that it does not hold
--   quota_try, quota_lies   the permit in flight that tests whether it is used up, and how many such were answered
-- GIVES: note_quota quota_shut start_beyond_quota judge_quota
-- USES: lane/state reported/quota_constants

local function begin_window(row, ends_ms)
  row.quota_full = row.quota_most or 0
  row.quota_end_ms, row.quota_fell, row.quota_most, row.quota_try, row.quota_lies = ends_ms, 0, 0, '', 0
end

-- Learns from a report that `left` calls are left for `reset_ms` (-1: unknown); `met`: a 429 reports it. Returns
-- whether this 429 is due to the quota. A quota that ends at once may be a sliding window, of which the lane learns the
-- rate.
function note_quota(row, left, reset_ms, met, lease, now)
  if left < 0 or reset_ms <= 0 or reset_ms > LONGEST_QUOTA_MS then return false end
  local ends_ms = now + reset_ms
  local same = math.abs(ends_ms - (row.quota_end_ms or 0)) <= SAME_END_MS + SAME_END_PART * reset_ms
  if not same or lease.n > row.quota_n then
    if not same then begin_window(row, ends_ms) end
    local fell = same and row.quota_left - left or 0
    local beside = math.max(lease.inflight, row.inflight or 0)
    if fell < -ROSE_MOST - beside and row.quota_fell > 0 then row.quota_proved = -1 end
    row.quota_fell, row.quota_most = math.max(0, row.quota_fell + fell), math.max(left, row.quota_most)
    if met and left == 0 and row.quota_fell >= FELL_LEAST then row.quota_proved = row.quota_proved or 1 end
    row.quota_n, row.quota_left, row.quota_until_ms = lease.n, left, ends_ms
    row.quota_unsent = row.seen_unsent or 0
  end
  return met and left == 0 and row.quota_proved == 1 and reset_ms > SAME_END_MS
end

-- Calls beyond the quota (negative: calls left), and until when; nil without a quota. A renewed quota counts as it was
-- before, until an answer reports it.
local function beyond(row, now)
  local proved = row.quota_proved or 0
  if proved < 0 or proved == 0 and (row.quota_fell or 0) < FELL_LEAST then return nil end
  local calls = (row.granted or 0) - ((row.seen_unsent or 0) - row.quota_unsent) - row.quota_n - row.quota_left
  if now < row.quota_until_ms then return calls, row.quota_until_ms end
  local renewed_until_ms = row.quota_until_ms + RENEWED_MS
  if proved == 0 or now >= renewed_until_ms then return nil end
  return calls - math.max(row.quota_full, row.quota_most), renewed_until_ms
end

-- Until when the lane waits for its quota; nil if it need not. Until a 429 has proved the quota, one call tests it,
-- once no other call is in flight whose answer may report more.
function quota_shut(row, now)
  local calls, until_ms = beyond(row, now)
  if not calls or calls < 0 then return nil end
  if row.quota_proved == 1 then return until_ms end
  if (row.inflight or 0) > 0 then return math.min(until_ms, now + TRY_AGAIN_MS) end
  return nil
end

-- Notes that a permit was granted, if it is one beyond the quota.
function start_beyond_quota(row, now)
  if (beyond(row, now) or 0) > 0 and not known(row.quota_try) then row.quota_try = row.granted end
end

-- Learns from the call that tested a used-up quota. A report that more is left shows that it was not used up.
function judge_quota(row, lease, signal, now)
  if known(row.quota_try) ~= lease.n then return end
  row.quota_try = ''
  if signal == 'limited' then
    row.quota_proved = row.quota_proved or 1
  elseif (signal == 'ok' or signal == 'answered') and (beyond(row, now) or -1) >= 0 then
    row.quota_lies = row.quota_lies + 1
    if row.quota_lies >= LIES_LEAST then row.quota_proved = -1 end
  end
end

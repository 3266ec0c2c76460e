-- Keeps to a quota that says how many calls are left until when, and not for which period: X-RateLimit-Remaining and
-- X-RateLimit-Reset without a policy, as most rate limiters of web servers send them. Until it renews, the lane starts
-- no more calls than are left. How fast it starts them is learned as without headers.
--   quota_n, quota_left, quota_until_ms   the latest call that reported it, what was left then, and when it renews
--   quota_unsent                          calls that were never sent, by then
--   quota_end_ms, quota_fell, quota_most  an end, by how many calls it has fallen towards it, the most that was left
--   quota_full                            the most that was left before the end before that
--   quota_proved            1 once a call beyond it met a 429, -1 once it is known to say nothing
--   quota_try, quota_lies   the call in flight that tries whether it is used up, and how many such were answered
-- GIVES: note_quota quota_shut start_beyond_quota judge_quota
-- USES: lane/state reported/quota_constants

local function begin_window(row, ends_ms)
  row.quota_full = row.quota_most or 0
  row.quota_end_ms, row.quota_fell, row.quota_most, row.quota_try, row.quota_lies = ends_ms, 0, 0, '', 0
end

-- Learns from a report that `left` calls are left for `reset_ms` (-1: not said), of a 429 if `met`. Returns whether
-- this 429 met the quota's end. One that ends at once may slide, and then its rate is what is learned.
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

-- Calls beyond those that are left, less than 0 where some are left, and until when; nil where no quota is known. Once
-- it has renewed, it holds what it held before until an answer says more.
local function beyond(row, now)
  local proved = row.quota_proved or 0
  if proved < 0 or proved == 0 and (row.quota_fell or 0) < FELL_LEAST then return nil end
  local calls = (row.granted or 0) - ((row.seen_unsent or 0) - row.quota_unsent) - row.quota_n - row.quota_left
  if now < row.quota_until_ms then return calls, row.quota_until_ms end
  local renewed_until_ms = row.quota_until_ms + RENEWED_MS
  if proved == 0 or now >= renewed_until_ms then return nil end
  return calls - math.max(row.quota_full, row.quota_most), renewed_until_ms
end

-- Until when the lane waits for its quota; nil where it need not. Until a 429 has proved the quota, one call tries
-- whether it says anything, once no other is in flight whose answer may say more.
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

-- Learns from the call that tried a quota that was used up. A report that more is left says that it was not.
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

-- Judges the calls that test whether a shut lane is open: the first since its 429s, one during a named wait, and one
-- beyond its quota.
-- GIVES: judge_trials is_freed
-- USES: job/rejections refusal/growth refusal/named_waits refusal/provisional reported/quota

-- Learns from the end of any call, before its 429 is used otherwise. `row` is an edit of `lane`. Returns how many of
-- the `wait_ms` that the provider named the lane waits: 0 if the limit is one on growth.
function judge_trials(row, limits, lane, lease, signal, hints, wait_ms, now)
  if signal == 'ok' or signal == 'answered' then
    confirm_openings(row, lease)
  elseif signal == 'limited' then
    take_back_opening(row, lane, lease)
  elseif signal == 'unsent' then
    void_trial(row, lane, lease)
  end
  judge_quota(row, lease, signal, now)
  judge_wait(row, lease, signal, now)
  if signal == 'limited' and limits_growth(limits, hints) then
    learn_growth(row, lease, wait_ms, now)
    lease.of_growth, lease.waits_ms = true, wait_ms
    return 0
  end
  return wait_of_lane(row, lease, is_rejection(signal), hints, wait_ms, now)
end

-- Whether the lane was blocked when permits were last requested, and may start calls now.
function is_freed(row, lane, now)
  return lane.stop == 'blocked' and now >= (row.blocked_ms or 0) and not quota_shut(row, now)
end

-- Brings a lane up to now: applies what has changed with time since permits were last requested.
--   stop, stop_until_ms   what blocked jobs then, and until when (0: until woken)
-- GIVES: advance_to_now note_grant
-- USES: concurrency/concurrency_trial concurrency/widening estimate/limit_estimator estimate/measurement
--       lane/counts lane/limits lane/state rate/constants rate/growth refusal/reopening reported/quota
--       reported/window_detector

-- Starts counting again if jobs, not the limit, were scarce for SLACK_MS: what the provider has saved is unknown.
local function keep_slack(row, axis, count, elapsed_ms, now)
  if known(row.shut) then return end
  row[axis .. '_slack_ms'] = (row[axis .. '_slack_ms'] or SLACK_MS) + elapsed_ms
  if row[axis .. '_slack_ms'] < SLACK_MS then return end
  mark_opening(row, axis, now, count, row.granted)
  row[axis .. '_slack_ms'], row[axis .. '_saved'] = 0, 1
end

-- For how many ms nobody requested permits although the lane was open again: the leader or Redis stood still. Less than
-- SLACK_MS is the time of a request, and counts as 0.
local function unasked_ms(row, now)
  if (row.stop_until_ms or 0) <= 0 then return 0 end
  local ms = now - math.max(row.stop_until_ms, row.asked_ms or now)
  return ms >= SLACK_MS and ms or 0
end

-- Ages rates, rolls windows, and ends a series of 429s once none has come for long enough.
function advance_to_now(row, limits, now)
  local since = now - (row.asked_ms or now)
  local elapsed, unasked = math.min(60000, since), unasked_ms(row, now)
  row.asked_ms, row.known_ms = now, row.known_ms or now
  if row.stop == 'window' then
    end_poor_trial(row, now)
    widen_window(row, limits, elapsed)
  end
  for _, axis in ipairs(AXES) do
    if axis == 'requests' or known(row[axis .. '_est']) then
      local count = admitted(row, axis)
      roll_windows(row, axis, count, now)
      if row.stop == axis then
        local most = allowed(row, limits, axis)
        local limited = math.min(60000, since - unasked)
        if most then age_estimate(row, axis, most, limited, has_risen(row, axis, count, 0, now)) end
        row[axis .. '_slack_ms'] = 0
        if unasked > 0 then
          row[axis .. '_idle_ms'] = (row[axis .. '_idle_ms'] or 0) + unasked
          keep_slack(row, axis, count, unasked, now)
        end
      else
        if row.stop ~= 'refused' then row[axis .. '_idle_ms'] = (row[axis .. '_idle_ms'] or 0) + since end
        keep_slack(row, axis, count, elapsed, now)
      end
    end
  end
  if refusals_ended(row, now) then learn_opening(row, limits, now) end
end

-- Notes a granted permit. The first since a 429 tests whether the lane is open, and one beyond a quota tests the quota.
-- A call that `tries` a named wait tests only whether the whole lane must wait (refusal/wait_tries).
function note_grant(row, tries, now)
  if tries then
    row.wait_try_ms, row.wait_tried_ms, row.wait_tried_n, row.sign = '', now, row.granted, row.granted
    return
  end
  if known(row.shut) and not known(row.after_ms) then row.after_ms = now end
  start_beyond_quota(row, now)
end

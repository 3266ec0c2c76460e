-- Ends an attempt without a report: its lease has lapsed, or its worker is silent.
-- GIVES: end_lapsed is_lost
-- USES: core/tries job/end_attempt job/silence run/note_answer run/release_bounds run/role_times
--       run/state_fields
-- NEEDS: KEY.state

-- Whether `worker` holds this lease and is silent. A claim is a sign of life, as a beat is.
function is_lost(lease, worker, timeout_ms, now)
  if not lease.worker or lease.worker ~= worker then return false end
  if lease.claimed_ms and lease.claimed_ms + timeout_ms > now then return false end
  return is_silent(worker, timeout_ms, now)
end

-- Tries the keys in `kinds` (core/tries), and ends it with unknown usage if a worker claimed it, else as never sent.
-- Returns whether its run still exists; if not, only the lane and the team's budgets have changed.
function end_lapsed(lease, id, kinds, now)
  try_keys(kinds)
  local used = lease.worker and { input = -1, output = -1, cached = -1 } or nil
  local outcome = { signal = 'none', used = used, retry_after_ms = 0, hints = '', reason = '' }
  end_attempt(lease, id, outcome, used, now)
  if redis.call('EXISTS', KEY.state) == 0 then
    drop_fields(KEY.state)
    return false
  end
  release_bounds(lease, 'none', used)
  note_answer(lease, 'none', '', '', now)
  call_ended(lease, now, 1)
  return true
end

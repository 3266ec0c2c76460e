-- Whether a worker is silent, judged in the moment in which its leases are taken from it.
-- GIVES: is_silent
-- NEEDS: KEY.workers

-- A worker that has not beaten for `timeout_ms` is silent, and so is one that nobody knows.
function is_silent(worker, timeout_ms, now)
  local beat_ms = tonumber(string.match(redis.call('HGET', KEY.workers, worker) or '', '^%d+'))
  return not beat_ms or beat_ms + timeout_ms <= now
end

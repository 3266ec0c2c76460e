-- Decides whether a worker is silent, in the same script that recovers its leases.
-- GIVES: is_silent
-- NEEDS: KEY.workers

-- A worker without a heartbeat for `timeout_ms` is silent, and so is an unknown worker.
function is_silent(worker, timeout_ms, now)
  local beat_ms = tonumber(string.match(redis.call('HGET', KEY.workers, worker) or '', '^%d+'))
  return not beat_ms or beat_ms + timeout_ms <= now
end

-- Slow start: how a lane without any limit that is known finds its rate before the first 429.
-- GIVES: slow_start forget_rate
-- USES: lane/state rate/constants refusal/provisional

-- Slow start (TCP's, RFC 5681): one more call in flight for each success, while the rate is what limits jobs.
function slow_start(row, limits, lease, now)
  if limits.requests_per_minute or known(row.requests_reported) or known(row.requests_age_ms) then return end
  if known(row.shut) or known(row.growth_rate) or row.stop ~= 'requests' then return end
  local rate = known(row.requests_est) or START_PER_MINUTE
  row.requests_est = math.min(MOST_PER_MINUTE, rate + math.min(rate / 2, 60000 / math.max(1, now - lease.granted_ms)))
end

-- Starts the rate anew, where concurrency turns out to be the limit.
function forget_rate(row, limits)
  row.requests_age_ms, row.shut = '', ''
  forget_openings(row)
  if limits.requests_per_minute or known(row.requests_reported) then row.requests_est = '' end
end

-- Slow start: finds the rate of a lane without a known limit, until its first 429.
-- GIVES: slow_start forget_rate
-- USES: lane/state rate/constants refusal/provisional

-- Grows the rate as TCP's slow start does (RFC 5681): one more call in flight for each success, while the rate limits
-- jobs.
function slow_start(row, limits, lease, now)
  if limits.requests_per_minute or known(row.requests_reported) or known(row.requests_age_ms) then return end
  if known(row.shut) or known(row.growth_rate) or row.stop ~= 'requests' then return end
  local rate = known(row.requests_est) or START_PER_MINUTE
  row.requests_est = math.min(MOST_PER_MINUTE, rate + math.min(rate / 2, 60000 / math.max(1, now - lease.granted_ms)))
end

-- Restarts the rate, as concurrency has proved to be the limit.
function forget_rate(row, limits)
  row.requests_age_ms, row.shut = '', ''
  forget_openings(row)
  if limits.requests_per_minute or known(row.requests_reported) then row.requests_est = '' end
end

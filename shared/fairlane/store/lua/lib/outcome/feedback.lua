-- Applies an attempt's outcome to its lane. `signal` is one of
--   ok | answered (the request itself was wrong) | limited (429) | overloaded (503, 529) | server_error (other 5xx) |
--   broken (no answer, or none that can be read) | refused (401, 403) | none |
--   unsent (the permit came too late to be used).
-- GIVES: apply_outcome
-- USES: circuit/circuit circuit/hold circuit/own_limits concurrency/hung lane/state outcome/overloaded
--       outcome/rejected outcome/served outcome/spending outcome/trials reported/hints tokens/refund
-- NEEDS: KEY.lane KEY.limits

-- Applies one report to KEY.lane. `used` is {input, output, cached} as the provider counted, -1 if unknown; nil if the
-- attempt was never sent. Returns the lane's news for the log or '', the lane as written, and whether another of its
-- calls may start now.
function apply_outcome(lease, signal, used, asked_ms, hints_json, reason, now)
  local lane, limits, news = read_hash(KEY.lane), read_hash(KEY.limits), ''
  local retry_after_ms = math.min(asked_ms, longest_wait(limits))
  local row = edited(lane)
  local hints = hints_json ~= '' and cjson.decode(hints_json) or {}
  lease.asked_ms = asked_ms <= longest_wait(limits) and asked_ms or 0
  local own = is_own_limit(row, limits, lease, signal, retry_after_ms, now)
  if own then lease.waits_ms = math.max(lease.asked_ms, lease.waits_ms or 0) end
  if own then asked_ms, retry_after_ms, hints = 0, 0, {} end
  if lease.doubtful then row.doubtful = math.max(0, (row.doubtful or 0) - 1) end
  row['seen_' .. signal] = (lane['seen_' .. signal] or 0) + 1
  true_up_buckets(lane, limits, lease, own and 'refused' or signal, used, row, now)
  correct_spending(row, limits, lease, signal, used, now)
  if learn_hints(row, limits, hints, lease, now) then news = 'shared' end
  local wait_ms = judge_trials(row, limits, lane, lease, own and 'refused' or signal, hints, retry_after_ms, now)
  if signal == 'ok' or signal == 'answered' then
    served(row, limits, lease, signal, used, now)
  elseif signal == 'limited' and not own then
    suspect_team(row, lane, lease, retry_after_ms, now)
    local held = lease.probe and known(row.held_until_ms) -- its probes show nothing of the rate
    if not held then news = rejected(row, limits, lease, hints, wait_ms, now) end
  elseif signal == 'overloaded' and not own then
    wait_ms = overloaded(row, lease, wait_ms, now)
  end
  local failed, access = count_end(row, lane, limits, lease, (own or lease.withdrawn) and 'none' or signal, reason, now)
  if lease.probe and known(row.held_until_ms) and (row.circuit == 'closed' or failed) then row.held_until_ms = '' end
  news = access or rawget(row, 'circuit') or news
  if wait_ms > 0 then
    if news == '' and now >= (lane.blocked_ms or 0) then news = 'blocked' end
    row.named_ms = math.max(row.named_ms or 0, now + wait_ms)
    row.blocked_ms = math.max(row.blocked_ms or 0, row.named_ms)
  end
  if reason ~= '' and signal ~= 'none' then row.last_error, row.last_error_ms = reason, now end
  hold(row, limits, lease, signal == 'limited' and hints or {}, asked_ms, known(lane.held_until_ms), now)
  row.inflight = (row.inflight or 0) - 1
  end_hung(row, lease, signal, now)
  local awaited = row.teams_wait == 1 or row.stop == 'window' or row.stop == 'reserved'
  if row.teams_wait == 1 then row.teams_wait = 0 end
  local judged = write_judged(row, lease, signal, wait_ms, now)
  local freed = is_freed(row, lane, now)
  return news, row, lease.probe or lane.stop == 'doubt' or judged or freed or awaited
end

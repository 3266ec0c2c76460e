-- What a lane learns from a call that the provider answered; lib/outcome/rejected.lua is its counterpart.
-- GIVES: served
-- USES: circuit/circuit circuit/circuit_constants concurrency/concurrency_detector concurrency/concurrency_floor
--       concurrency/concurrency_limit concurrency/concurrency_trial concurrency/latency concurrency/overload
--       lane/state rate/slow_start refusal/by_chance

-- `used` is {input, output, cached}, -1 if unknown.
function served(row, limits, lease, signal, used, now)
  count_answer(row, lease, signal, now)
  row.streak = math.max(0, (row.streak or 0) - CALMED)
  note_through(row, lease)
  count_served(row, lease)
  count_beyond(row, lease)
  climb_window(row, limits, lease, now)
  local may_be_places = not known(row.check_rate) and not known(row.chance)
  if may_be_places and served_suspect_concurrency(row) then forget_rate(row, limits) end
  note_answered(row, limits, lease, now)
  if signal ~= 'ok' then return end
  if lease.n > (row.sign or 0) then row.proved = 1 end
  slow_start(row, limits, lease, now)
  watch_latency(row, lease, used, now)
end

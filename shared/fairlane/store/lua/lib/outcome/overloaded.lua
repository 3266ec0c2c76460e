-- What a lane learns from a call that an overloaded provider rejected (503, 529).
-- GIVES: overloaded
-- USES: circuit/shut_out concurrency/overload outcome/rejected

-- Returns how long the lane waits, in ms, of the `wait_ms` that it would wait of what the call was told: not at all
-- where overloads come by chance. Nor does it by itself where the wait is the call's alone.
function overloaded(row, lease, wait_ms, now)
  if is_shut(row, lease) then return wait_ms end
  local random = overload_narrows(row, lease, now)
  -- While the circuit is open, it is the wait.
  local alone = lease.asked_ms > 0 and wait_ms == 0
  if not random and not alone and (row.circuit or 'closed') == 'closed' then back_off(row, lease, now) end
  return random and 0 or wait_ms
end

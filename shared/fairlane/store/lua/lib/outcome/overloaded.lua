-- What a lane learns from a call that an overloaded provider rejected (503, 529).
-- GIVES: overloaded
-- USES: circuit/shut_out concurrency/overload outcome/rejected

-- Returns for how many ms the lane waits: `wait_ms`, the part of the named wait that concerns it, or 0 if the overload
-- came by chance. If the named wait is only the call's, the lane does not back off by itself, either.
function overloaded(row, lease, wait_ms, now)
  if is_shut(row, lease) then return wait_ms end
  local random = overload_narrows(row, lease, now)
  -- While the circuit is open, its delay is the wait.
  local alone = lease.asked_ms > 0 and wait_ms == 0
  if not random and not alone and (row.circuit or 'closed') == 'closed' then back_off(row, lease, now) end
  return random and 0 or wait_ms
end

-- What a lane learns from a call that an overloaded provider rejected (503, 529).
-- GIVES: overloaded
-- USES: circuit/shut_out concurrency/overload outcome/rejected

function overloaded(row, lease, now)
  if is_shut(row, lease) then return end
  local random = overload_narrows(row, lease, now)
  -- While the circuit is open, it is the wait.
  if not random and (row.circuit or 'closed') == 'closed' then back_off(row, lease, now) end
end

-- Calls that try whether the whole lane must keep a named wait (refusal/named_waits). A try starts after a part of a
-- wait. While none is answered, the time between two tries doubles, and after some tries also the number of calls. So a
-- provider that shuts the lane rejects few. In a lane's hash:
--   wait_try_ms                   when the next try starts (lane/limits), '' if none does
--   wait_vain                     calls during such waits that were rejected since one was answered
--   wait_tried_ms, wait_tried_n   when the last try started, and its permit
-- GIVES: plan_try end_wait
-- USES: lane/state refusal/named_wait_constants

-- Plans the next try of a wait of `wait_ms`.
function plan_try(row, wait_ms, now)
  local vain = math.min(row.wait_vain or 0, MOST_VAIN)
  row.wait_try_ms = ''
  if vain >= FREE_TRIES and (row.granted or 0) - (row.wait_tried_n or 0) < 2 ^ vain then return end
  local soon_ms = now + math.min(TRY_MS, TRY_PART * wait_ms)
  row.wait_try_ms = math.ceil(math.max(soon_ms, (row.wait_tried_ms or 0) + TRY_MS * (2 ^ vain - 1)))
end

-- Ends the block by named waits: a call that started at `from_ms` was answered. Buckets earn from now on.
function end_wait(row, from_ms, now)
  if (row.blocked_ms or 0) <= now then return end
  local firm_ms = row.firm_ms or 0
  row.blocked_ms, row.named_ms = math.max(firm_ms, row.busy_ms or 0), math.min(row.named_ms or 0, firm_ms)
  row.again_ms, row.wait_try_ms = '', ''
  if known(row.shut) then row.after_ms = from_ms end
  for _, axis in ipairs(AXES) do
    if (row[axis .. '_ms'] or 0) > now then
      row[axis .. '_level'], row[axis .. '_ms'] = math.max(0, row[axis .. '_level']), now
    end
  end
end

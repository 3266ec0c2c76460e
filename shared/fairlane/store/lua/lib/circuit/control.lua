-- Controls. If rejections alike have opened a lane's circuit, its probes repeat a request that the lane answered
-- before, if their worker knows one. An answer shows that the rows are at fault, even if only such rows are left; a
-- rejection shows that the lane rejects all calls. In a lane's hash:
--   own_controls   how many controls in a row were answered after rejections in the words of `rows_own`
-- GIVES: doubt_factor wants_control write_own note_control
-- USES: circuit/row_constants
-- NEEDS: KEY.lane

-- The factor on how many rows must be rejected alike until the lane is doubted: each control costs a whole answer.
function doubt_factor(controls)
  return 2 ^ math.min(controls, CONTROL_DOUBLINGS)
end

-- True if a lease's call may be a control, else nil.
function wants_control(lease)
  if not lease.probe then return nil end
  local opened, answered_n = unpack(redis.call('HMGET', KEY.lane, 'alike_opened', 'answered_n'))
  return tonumber(opened or 0) > tonumber(answered_n or 0) or nil
end

function write_own(words, times, controls)
  redis.call('HSET', KEY.lane, 'rows_own', words, 'rows_own_n', times, 'own_controls', controls)
end

-- Notes whether a control was answered.
function note_control(answered)
  local alike, own, times, controls = unpack(redis.call('HMGET', KEY.lane, 'alike', 'rows_own', 'rows_own_n',
    'own_controls'))
  if not answered then return redis.call('HSET', KEY.lane, 'own_controls', 0) end
  if not alike then return end
  local same = alike == own
  write_own(alike, math.max(OWN_TIMES, same and tonumber(times or 0) or 0), (same and tonumber(controls or 0) or 0) + 1)
end

-- The estimate of a limit, and the one-dimensional Kalman filter that updates it from measurements.
--   <axis>_est_ms   when the estimate was last set
--   <axis>_steady   1 once an estimate was sure
-- GIVES: set_estimate filter_estimate
-- USES: estimate/strays lane/counts rate/constants rate/curve rate/probe_slope rate/refusal_budget

function set_estimate(row, axis, est, var, now)
  row[axis .. '_est'] = math.max(LEAST_PER_MINUTE * one_call(row, axis), math.min(MOST_PER_MINUTE, est))
  row[axis .. '_var'] = var
  row[axis .. '_est_ms'] = now
end

-- Updates the estimate after a 429 on new ground, well above it. If the measurement is above it, too (`risen`), the
-- limit rose within the measured span: it lies between the span's count and the rejected rate. If not, a provider that
-- saves nothing rejected a slow probe: the limit is just below the probe.
local function estimate_on_new_ground(row, axis, seen, risen, now)
  local least, most = seen.least, math.max(seen.rate, row.pace_then)
  local est = risen and math.sqrt(least * most) or math.max(seen.rate, KEPT_OF_PROBE * most)
  note_probe(row, axis)
  probe_often(row, axis)
  set_estimate(row, axis, est, risen and ((most - least) / 4) ^ 2 + seen.noise or (0.1 * est) ^ 2, now)
end

-- Updates the estimate, whose variance has grown to `var` by now, by a measurement {rate, noise, least}
-- (estimate/measurement). A rise that was proved before the 429 counts, however late in the span it came. Returns
-- whether the measurement was precise enough, so that the next one begins here.
function filter_estimate(row, axis, seen, var, long, now)
  local est, noise = row[axis .. '_est'], seen.noise
  local off, sure = seen.rate - est, not is_unsure(row, axis)
  local moved = math.abs(off) > SURPRISE * math.sqrt(var + noise)
  local risen = off > 0 and (moved or is_unsure(row, axis)) or row.risen_then == 1 and not (moved and off < 0)
  local new_ground = row.pace_then > NEW_GROUND * row.est_then and (risen or row[axis .. '_slow'] == 1)
  row[axis .. '_var'] = var
  if row.novice == 1 and not long then
    set_estimate(row, axis, math.max(seen.rate, est), (0.5 * est) ^ 2, now)
  elseif new_ground and not long then
    estimate_on_new_ground(row, axis, seen, risen, now)
  else
    if moved then var = off * off end
    row[axis .. '_var'] = var
    if noise > 4 * var then return false end
    if moved then probe_often(row, axis) elseif var < (SURE * est) ^ 2 then put_probe_off(row, axis) end
    local gain = var / (var + noise)
    set_estimate(row, axis, est + gain * off, var * (1 - gain), now)
    local from = estimate_before_stray(row, axis, est, sure)
    if from then set_estimate(row, axis, from, (STRAY_DOUBT * from) ^ 2, now) end
    if row[axis .. '_var'] < (SURE * row[axis .. '_est']) ^ 2 then row[axis .. '_steady'] = 1 end
    adjust_slope(row, axis, now)
  end
  return true
end

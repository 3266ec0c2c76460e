-- Detects 429s that do not depend on the rate (strays). They come again and again before a lane is back at its
-- estimate, however low the rate is. The first of them must meet a lane that knew its limit: while a lane still
-- searches, an estimate that keeps falling was too high.
--   <axis>_strays, _stray_from   429s in a row before the lane was back, and the estimate before the first of them
--   <axis>_strays_wanted         how many it takes: each time twice as many
-- GIVES: estimate_before_stray
-- USES: rate/constants

-- The estimate to return to after a measurement; nil if the new one stays. `before`: the estimate before it; `sure`: it
-- was sure.
function estimate_before_stray(row, axis, before, sure)
  local strays = row.stray == 1 and (row[axis .. '_strays'] or 0) + 1 or 0
  if strays == 1 and not sure then strays = 0 end
  local wanted = row[axis .. '_strays_wanted'] or STRAYS
  if strays <= 1 then row[axis .. '_stray_from'] = before end
  row[axis .. '_strays'] = strays
  local from = row[axis .. '_stray_from']
  if strays < wanted or row[axis .. '_est'] > FALLEN * from then return nil end
  row[axis .. '_strays'], row[axis .. '_strays_wanted'] = 0, math.min(MOST_STRAYS, 2 * wanted)
  return from
end

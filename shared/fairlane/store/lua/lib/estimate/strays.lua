-- Detects 429s that come whatever the rate is. Where they come again and again before a lane is back at its estimate,
-- an ever lower rate may not end them. Then they have another cause than the rate. The first of them must meet a lane
-- that knew its limit: while it searches, an estimate that falls and falls was too high.
--   <axis>_strays, _stray_from   429s in a row before the lane was back, and the estimate before the first of them
--   <axis>_strays_wanted         how many it takes: each time twice as many
-- GIVES: strayed_from
-- USES: rate/constants

-- The estimate to return to after a measurement that followed the estimate `before`, which was `sure`; nil where it
-- stands.
function strayed_from(row, axis, before, sure)
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

-- Slows down probing if a provider rejects growth that is too fast. Some providers allow less after an overrun, or
-- reject fast growth well below their limit. If a lane is rejected on new ground and then measures less than before the
-- probe, it probes half as steeply from then on. If that happens to a lane that already probes gently, the limit may be
-- there: the lane stays below that ground for a while, each time for longer. A lane that finds the limit at the
-- rejection probes more steeply again.
-- GIVES: note_probe adjust_slope
-- USES: lane/state rate/constants

-- Notes the ground at which a probe was rejected, and how fast the rate grew up to it.
function note_probe(row, axis)
  if row[axis .. '_var'] > (KNOWN_WITHIN * row[axis .. '_est']) ^ 2 then return end
  local minutes = math.max(0.05, row.age_then / 60000)
  row.ground, row.ground_from = row.pace_then, row[axis .. '_est']
  row.ground_growth = math.log(row.pace_then / row[axis .. '_est']) / minutes
end

-- Adjusts the slope after a measurement that follows a probe, once it is clear what the probe found.
function adjust_slope(row, axis, now)
  local ground, slope = known(row.ground), known(row[axis .. '_slope'])
  if not ground then return end
  local est = row[axis .. '_est']
  local found, shrunk, unsure = est / ground, est < FAIR * row.ground_from, row[axis .. '_var'] > (SURE * est) ^ 2
  if unsure and found <= FAIR and not shrunk then return end
  row.ground = ''
  if found > FAIR then
    if slope then row[axis .. '_slope'] = slope * STEEPER end
  elseif not shrunk then
    return
  elseif not slope or row.ground_growth < slope / 2 then
    row[axis .. '_slope'] = row.ground_growth / 2
  elseif now >= (row[axis .. '_top_until_ms'] or 0) then
    row[axis .. '_slope'], row[axis .. '_top'] = slope * GENTLER, ground * CLEAR
    row[axis .. '_top_for_ms'] = math.min(CLEAR_MOST_MS, 2 * (row[axis .. '_top_for_ms'] or CLEAR_MS / 2))
    row[axis .. '_top_until_ms'] = now + row[axis .. '_top_for_ms']
  end
end

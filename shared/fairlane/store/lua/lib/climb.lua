-- Some providers allow less after they were overrun, or refuse a growth that they find too fast, well below their
-- limit. Where a lane was refused on new ground and then found far less, it has climbed too steeply: half as steep
-- from now on. Where that happens to one that climbs gently already, the limit may be there: it is kept clear of for
-- a while, each time for longer. Where the lane found the limit at the refusal, it may be steeper again.
-- GIVES: climbed judge_climb

local TOO_STEEP, FAIR, STEEPER, GENTLER = 0.75, 0.9, 1.5, 0.7
local KNOWN_WITHIN = 0.11 -- the estimate's standard deviation; whoever still searches has no ground of its own
local CLEAR, CLEAR_MS, CLEAR_MOST_MS = 0.95, 120000, 3600000

function climbed(row, axis)
  if row[axis .. '_var'] > (KNOWN_WITHIN * row[axis .. '_est']) ^ 2 then return end
  local minutes = math.max(0.05, row.age_then / 60000)
  row.ground, row.ground_growth = row.pace_then, math.log(row.pace_then / row[axis .. '_est']) / minutes
end

function judge_climb(row, axis, now)
  local ground, slope = known(row.ground), known(row[axis .. '_slope'])
  if not ground then return end
  local found = row[axis .. '_est'] / ground
  if found >= TOO_STEEP and found <= FAIR then return end
  row.ground = ''
  if found > FAIR then
    if slope then row[axis .. '_slope'] = slope * STEEPER end
  elseif not slope or row.ground_growth < slope / 2 then
    row[axis .. '_slope'] = row.ground_growth / 2
  elseif now >= (row[axis .. '_top_until_ms'] or 0) then
    row[axis .. '_slope'], row[axis .. '_top'] = slope * GENTLER, ground * CLEAR
    row[axis .. '_top_for_ms'] = math.min(CLEAR_MOST_MS, 2 * (row[axis .. '_top_for_ms'] or CLEAR_MS / 2))
    row[axis .. '_top_until_ms'] = now + row[axis .. '_top_for_ms']
  end
end

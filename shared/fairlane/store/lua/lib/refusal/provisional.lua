-- Provisional openings. A lane counts as open if one call has met no 429 for a while. If the provider is just slow, it
-- rejects that call later. Then the lane has not opened, and what it learned from the opening is wrong.
--   openings    JSON [{n, axis, fields}, …]: each such opening, oldest first: the permit of the call that showed it,
--               and what the lane knew before; until a later call is answered
--   opening_n   that permit of the oldest; '' if there is none
-- GIVES: keep_before_opening confirm_openings forget_openings take_back_opening void_trial
-- USES: lane/state
-- NEEDS: KEY.lane

local MOST = 4 -- openings that are kept: more at a time do not come from one slow moment
local OF_AXIS = {
  'est', 'var', 'est_ms', 'age_ms', 'climb_ms', 'steady', 'strays', 'stray_from', 'strays_wanted', 'back_ms', 'slow',
  'window', 'cost', 'cost_now', 'put_off', 'slope', 'top', 'top_for_ms', 'top_until_ms', 'edge', 'edge_lo', 'edge_hi',
  'edge_ms', 'edge_n', 'edges', 'long_ms', 'open', 'open_ms', 'open_n', 'idle_ms', 'wait_ms', 'saved',
}
local OF_LANE = {
  'shut', 'first_ms', 'first', 'first_refused_n', 'last_ms', 'last', 'refusals', 'crowd', 'again_ms', 'refused_n',
  'refused_on', 'pace_then', 'est_then', 'epoch', 'shown_then', 'novice', 'risen_then', 'stray', 'age_then',
  'idle_then', 'in_window', 'last_minute', 'ground', 'ground_from', 'ground_growth',
}

local function each_field(axis, visit)
  for _, each in ipairs(OF_LANE) do visit(each) end
  for _, each in ipairs(OF_AXIS) do visit(axis .. '_' .. each) end
end

-- Ends all provisional openings: they are confirmed, or what was learned from them is forgotten.
function forget_openings(row)
  row.opening_n, row.openings = '', ''
end

local function write_openings(row, openings)
  if not openings[1] then return forget_openings(row) end
  row.opening_n, row.openings = openings[1].n, cjson.encode(openings)
end

-- Saves the fields that the opening may change which is learned now.
function keep_before_opening(row)
  local openings, fields = known(row.openings) and cjson.decode(row.openings) or {}, {}
  if #openings >= MOST then table.remove(openings) end
  each_field(row.shut, function(field) fields[field] = row[field] end)
  openings[#openings + 1] = { n = row.sign + 1, axis = row.shut, fields = fields }
  write_openings(row, openings)
end

-- Confirms the openings that an answered call, or an earlier one, has shown.
function confirm_openings(row, lease)
  local oldest = known(row.opening_n)
  if not oldest or lease.n < oldest then return end
  local openings = cjson.decode(row.openings)
  while openings[1] and openings[1].n <= lease.n do table.remove(openings, 1) end
  write_openings(row, openings)
end

-- Restores a field; `row` is an edit of `lane`.
local function restore(row, lane, field, value)
  if value ~= nil then
    row[field] = value
  elseif row[field] ~= nil then
    redis.call('HDEL', KEY.lane, field)
    row[field], lane[field] = nil, nil
  end
end

-- Takes back the opening that this call had shown, as it was rejected or not sent: the series of 429s continues.
function take_back_opening(row, lane, lease)
  local oldest = known(row.opening_n)
  if not oldest or lease.n < oldest then return end
  local kept, found = {}, nil
  for _, opening in ipairs(cjson.decode(row.openings)) do
    found = found or opening.n == lease.n and opening or nil
    if not found then kept[#kept + 1] = opening end
  end
  if not found then return end
  each_field(found.axis, function(field) restore(row, lane, field, found.fields[field]) end)
  row.sign = lease.n - 1
  write_openings(row, kept)
end

-- After a call that was not sent: if it was to test whether the lane is open, the next call does.
function void_trial(row, lane, lease)
  take_back_opening(row, lane, lease)
  if known(row.shut) and lease.n == row.sign + 1 then row.after_ms, row.sign = '', row.granted end
end

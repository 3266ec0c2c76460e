-- Who says what an axis allows: the operator, the provider's headers, refusals ('probed'), or slow start.
-- GIVES: source_of

function source_of(row, limits, axis, stated, learned)
  if stated or limits[STATED[axis]] == 0 then return 'configured' end
  if not learned then return nil end
  if axis == 'day' then return 'headers' end
  if known(row[axis .. '_told']) then
    local untold = edited(row)
    untold[axis .. '_told'] = ''
    local found = known(row[axis .. '_est']) and believed(untold, axis, limits[STATED[axis]])
    if not found or learned < found then return 'headers' end
  end
  return known(row[axis .. '_age_ms']) and 'probed' or 'starting'
end

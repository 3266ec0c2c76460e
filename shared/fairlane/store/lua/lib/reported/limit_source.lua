-- Names the source of an axis' limit: the operator, the provider's headers, 429s ('probed'), or slow start.
-- GIVES: limit_source
-- USES: lane/state rate/rate

function limit_source(row, limits, axis, configured, learned)
  if configured or limits[CONFIGURED[axis]] == 0 then return 'configured' end
  if not learned then return nil end
  if axis == 'day' then return 'headers' end
  if known(row[axis .. '_reported']) then
    local unreported = edited(row)
    unreported[axis .. '_reported'] = ''
    local found = known(row[axis .. '_est']) and learned_rate(unreported, axis, limits[CONFIGURED[axis]])
    if not found or learned < found then return 'headers' end
  end
  return known(row[axis .. '_age_ms']) and 'probed' or 'starting'
end

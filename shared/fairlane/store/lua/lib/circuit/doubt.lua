-- A lane in doubt: its calls fail and nobody is answered, so few of them start until it shows how they end. In a lane's
-- hash:
--   doubt_for, doubted, doubtful    for how long calls of a lane in doubt are awaited, how many have started, and how
--                                   many of them are in flight
-- GIVES: doubt_ends in_doubt
-- USES: circuit/blame circuit/circuit_constants lane/state

-- A doubt ends when a call that started in it has outlived the time in which the one before it failed.
function doubt_ends(row)
  if not known(row.doubt_for) then return 0 end
  return row.doubtful > 0 and row.started_ms + row.doubt_for or math.huge
end

-- Until when a lane in doubt lets no further call start; nil where one may. Where calls fail and nobody is answered,
-- as many as would open the circuit go first, apart in time, and twice as long as the failure took shows how they end.
-- Calls of `team` do not wait for those of another whose calls alone have failed.
function in_doubt(row, limits, team, now)
  local ends_ms, blamed = doubt_ends(row), blamed_team(row)
  if blamed and blamed ~= team then return nil end
  if now >= ends_ms then
    row.doubt_for = ''
    return nil
  end
  if row.doubtful == 0 and row.doubted >= (limits.outage_failures or OUTAGE_FAILURES) then row.doubted = 0 end
  if row.doubted >= (limits.outage_failures or OUTAGE_FAILURES) then return ends_ms end
  local next_ms = (row.started_ms or 0) + CIRCUIT_APART_MS
  return next_ms > now and next_ms or nil
end

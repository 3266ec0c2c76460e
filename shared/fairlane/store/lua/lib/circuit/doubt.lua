-- A lane in doubt: its calls fail and nobody is answered, so only a few start until some have ended. If they do not end
-- at all, circuit/unanswered decides. In a lane's hash:
--   doubt_for, doubted, doubtful    for how many ms calls of a lane in doubt are awaited, how many have started, and
--                                   how many of them are in flight
--   guests                          calls that started in it of other teams than the one whose calls alone failed
-- GIVES: doubt_ends no_more_guests in_doubt start_doubted
-- USES: circuit/blame circuit/circuit_constants circuit/unanswered lane/state

-- When the doubt ends: a call that started in it then takes longer than the failed ones did.
function doubt_ends(row)
  if not known(row.doubt_for) then return 0 end
  return row.doubtful > 0 and row.started_ms + row.doubt_for or math.huge
end

-- Whether calls of `team` do not wait for a doubt: another team's calls alone have failed.
local function is_guest(row, team)
  local blamed = blamed_team(row)
  return blamed and blamed ~= team
end

-- Whether no further call of another team may start in a doubt. If nothing is in flight, one may: the others showed
-- nothing, and nothing else would wake the lane.
function no_more_guests(row, limits)
  local most = limits.outage_failures or OUTAGE_FAILURES
  return known(row.doubt_for) and (row.guests or 0) >= most and (row.inflight or 0) > 0
end

-- Until when a lane in doubt starts no further call of `team` (0: when woken); nil if one may start. As many calls as
-- would open the circuit go first, apart in time, and are awaited for twice as long as the failure took. As many calls
-- of other teams start at once, because theirs may not fail.
function in_doubt(row, limits, team, now)
  local ends_ms, most = doubt_ends(row), limits.outage_failures or OUTAGE_FAILURES
  if now >= ends_ms then
    row.doubt_for = ''
    return unanswered_until(row, now)
  end
  if is_guest(row, team) then
    if not no_more_guests(row, limits) then return nil end
    return ends_ms < math.huge and ends_ms or 0
  end
  if row.doubtful == 0 and row.doubted >= most then row.doubted = 0 end
  if row.doubted >= most then return ends_ms end
  local next_ms = (row.started_ms or 0) + CIRCUIT_APART_MS
  return next_ms > now and next_ms or nil
end

-- Counts a call that starts in a doubt. Returns whether its end is awaited.
function start_doubted(row, team)
  if not known(row.doubt_for) then return false end
  if is_guest(row, team) then
    row.guests = (row.guests or 0) + 1
    return false
  end
  row.doubted, row.doubtful = row.doubted + 1, row.doubtful + 1
  return true
end

-- A lane in doubt: its calls fail and nobody is answered, so few of them start until it shows how they end. Where they
-- do not end at all, circuit/unanswered decides. In a lane's hash:
--   doubt_for, doubted, doubtful    for how long calls of a lane in doubt are awaited, how many have started, and how
--                                   many of them are in flight
--   guests                          calls of teams that have started in it although another team's calls alone failed
-- GIVES: doubt_ends guests_done in_doubt start_doubted
-- USES: circuit/blame circuit/circuit_constants circuit/unanswered lane/state

-- A doubt ends when a call that started in it has outlived the time in which the one before it failed.
function doubt_ends(row)
  if not known(row.doubt_for) then return 0 end
  return row.doubtful > 0 and row.started_ms + row.doubt_for or math.huge
end

-- Whether calls of `team` do not wait for a doubt: another team's calls alone have failed.
local function is_guest(row, team)
  local blamed = blamed_team(row)
  return blamed and blamed ~= team
end

-- Whether as many calls of other teams have started in a doubt as may. One more may where nothing is in flight: the
-- others have shown nothing, and nobody would wake the lane.
function guests_done(row, limits)
  local most = limits.outage_failures or OUTAGE_FAILURES
  return known(row.doubt_for) and (row.guests or 0) >= most and (row.inflight or 0) > 0
end

-- Until when a lane in doubt lets no further call of `team` start (0: when woken); nil where one may. Where calls
-- fail and nobody is answered, as many as would open the circuit go first, apart in time. Twice as long as the
-- failure took shows how they end. As many of other teams go at once: they may not fail.
function in_doubt(row, limits, team, now)
  local ends_ms, most = doubt_ends(row), limits.outage_failures or OUTAGE_FAILURES
  if now >= ends_ms then
    row.doubt_for = ''
    return unanswered_until(row, now)
  end
  if is_guest(row, team) then
    if not guests_done(row, limits) then return nil end
    return ends_ms < math.huge and ends_ms or 0
  end
  if row.doubtful == 0 and row.doubted >= most then row.doubted = 0 end
  if row.doubted >= most then return ends_ms end
  local next_ms = (row.started_ms or 0) + CIRCUIT_APART_MS
  return next_ms > now and next_ms or nil
end

-- Counts a call that starts in a doubt. Returns whether the doubt awaits its end.
function start_doubted(row, team)
  if not known(row.doubt_for) then return false end
  if is_guest(row, team) then
    row.guests = (row.guests or 0) + 1
    return false
  end
  row.doubted, row.doubtful = row.doubted + 1, row.doubtful + 1
  return true
end

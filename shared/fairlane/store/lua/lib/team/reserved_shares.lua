-- Shares of a lane by team: the part that is reserved for a team while unused, and the most that it may take. Parts of
-- the rate are in lane minutes (lib/team/share_minutes.lua), parts of the concurrency in whole calls. A hash keeps when
-- the next call of each part may start. Its 'held <team>' keeps, for `fairlane why`, the maximum that last delayed the
-- team, and until when (0: when woken).
-- GIVES: shares_of_lane beyond_shares charge_shares save_shares
-- USES: concurrency/concurrency_limit core/time team/share_minutes
-- NEEDS: KEY.in_flight KEY.reserved_shares

local FORGOTTEN_MS = 3600000 -- ms after its last use for which the hash stays: longer than any call

local function due_times(key)
  local flat, found = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do found[flat[i]] = tonumber(flat[i + 1]) or nil end
  return found
end

local function whole_calls(shares, part)
  return shares.window < math.huge and math.floor(part * shares.window + 1e-6) or 0
end

-- `text` is {"<team>": {"own": part, "most": part}, …}, or ''. Returns nil if it is ''.
function shares_of_lane(text, row, limits, now)
  if text == '' then return nil end
  local shares = {
    parts = cjson.decode(text), due = due_times(KEY.reserved_shares), in_flight = due_times(KEY.in_flight),
    changed = {}, free = 1, now = now, window = concurrency_limit(row, limits),
  }
  shares.free_calls = shares.window
  for team, part in pairs(shares.parts) do
    shares.free = shares.free - part.own
    local own = whole_calls(shares, part.own)
    shares.free_calls = shares.free_calls - own + math.min(own, shares.in_flight[team] or 0)
  end
  for _, count in pairs(shares.in_flight) do shares.free_calls = shares.free_calls - count end
  return shares
end

-- What delays a call of the team that takes `minutes` of the lane (nil: its rate is unknown), and until when (0: when
-- woken); nil if nothing does.
function beyond_shares(shares, team, minutes)
  if not shares then return nil end
  local part = share_of_team(shares, team)
  local own, most = part.own, part.most
  local in_flight, limited = shares.in_flight[team] or 0, shares.window < math.huge
  if most < 1 then
    local due = shares.due['most ' .. team] or 0
    local full = limited and in_flight >= math.max(1, whole_calls(shares, most))
    local until_ms = minutes and due > shares.now and math.ceil(due) or full and 0
    if until_ms then
      redis.call('HSET', KEY.reserved_shares, 'held ' .. team, string.format('%.4g %d', most, until_ms))
      shares.noted = true
      return 'team_share', until_ms
    end
  end
  if not reserves_any(shares) then return nil end
  if minutes then
    local name, at = paying_part(shares, team, own)
    if not name then return 'reserved', at end
  end
  if limited and in_flight >= whole_calls(shares, own) and shares.free_calls < 1 then return 'reserved', 0 end
  return nil
end

-- Charges the shares for such a call that starts.
function charge_shares(shares, team, minutes)
  if not shares then return end
  local part = share_of_team(shares, team)
  local in_flight = shares.in_flight[team] or 0
  if in_flight >= whole_calls(shares, part.own) then shares.free_calls = shares.free_calls - 1 end
  shares.in_flight[team] = in_flight + 1
  if minutes then charge_minutes(shares, team, part, minutes) end
end

-- Writes what has changed. `owed` is {"<team>": billionths of a lane minute that it was charged too little}.
function save_shares(shares, owed)
  if not shares then return end
  for team, billionths in pairs(owed) do correct_minutes(shares, team, billionths / 1e9) end
  if not (shares.noted or next(shares.changed)) then return end
  local latest = shares.now
  for name in pairs(shares.changed) do
    redis.call('HSET', KEY.reserved_shares, name, string.format('%.17g', shares.due[name]))
  end
  for _, due in pairs(shares.due) do latest = math.max(latest, due) end
  redis.call('PEXPIRE', KEY.reserved_shares, whole(latest - shares.now + FORGOTTEN_MS))
end

-- The team whose calls alone a lane's provider rejects with 429s, as far as the lane knows: a model without a quota
-- rejects every call, and only the team that asked for it. A 429 is *unproved* while its run had no answer of that
-- kind (lib/run/model_refusals.lua). In a lane's hash:
--   suspect            '/' and the team of all 429s since suspect_n permits were granted, which are unproved; LANE if
--                      others were rejected, too, until a later call is answered
--   suspect_calls      how many such 429s; suspect_others: how many calls of others that started since were answered
--   suspect_wait_ms    until when they ask the team to wait
--   suspect_open       the team's calls that were in flight at the first of them and have not ended
--   suspect_size       the tokens of the smallest call among them
--   suspect_until_ms   until when the lane is blocked for other reasons
--   suspect_before     JSON: what the lane had learned before (circuit/learned_fields)
--   suspect_trial      the permit of a call in flight of another team, which started although these 429s shut the lane
-- GIVES: LANE suspect_of clear_suspect_of may_try is_suspected leave_suspect
-- USES: circuit/circuit_constants lane/state team/in_flight

LANE = '*' -- no name of a team

-- The team; nil if there is none.
function suspect_of(row)
  local suspect = known(row.suspect)
  return suspect and suspect ~= LANE and string.sub(suspect, 2) or nil
end

-- The same, once it has met enough 429s to let calls of other teams start.
function clear_suspect_of(row)
  local suspect = suspect_of(row)
  return suspect and row.suspect_calls >= REFUSED_LEAST and suspect or nil
end

-- Notes that a call in flight of the lane at `key` ends without an outcome; it no longer hangs, either
-- (concurrency/hung).
function leave_suspect(key, lease)
  local suspect, n, trial, hung_n = unpack(redis.call('HMGET', key, 'suspect', 'suspect_n', 'suspect_trial', 'hung_n'))
  if lease.n <= (tonumber(hung_n or '') or 0) then redis.call('HINCRBY', key, 'hung', -1) end
  if tonumber(trial or '') == lease.n then redis.call('HSET', key, 'suspect_trial', '') end
  if suspect == '/' .. team_of(lease.ref) and lease.n <= tonumber(n) then
    redis.call('HINCRBY', key, 'suspect_open', -1)
  end
end

-- Whether a call of `team` may start although another team's 429s shut the lane: it shows whose limit that is.
function may_try(row, team, now)
  local suspect = clear_suspect_of(row)
  return suspect ~= nil and suspect ~= team and not known(row.suspect_trial) and now >= row.suspect_until_ms
end

local LEARNED = { window = true, refused = true, requests = true, tokens = true, input = true, output = true }

-- Whether a lane may grant no more for `reason` because of one team's 429s: then a permit is offered to each team.
function is_suspected(row, reason)
  return clear_suspect_of(row) ~= nil and LEARNED[reason] == true
end

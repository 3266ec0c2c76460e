-- Forgets a lane that was not used for a while, with all that was learned of it.
-- KEYS: leader clock lanes lane limits owed in_flight reserved_shares configured openers headroom_tokens headroom_input
--       headroom_output
-- ARGV: now_ms epoch name unused_ms limits
-- USES: core/leader core/time core/tries lane/state
-- RETURNS: 1 forgotten; 0 kept: it was used since, is paused or has calls in flight, its provider asked to wait or
--          counts a day, or its limits are no longer `limits`; -1 not the leader.
-- `limits` is an object of texts, as they are stored: if others were set meanwhile, the lane stays.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) then return -1 end

local row, limits, stated = read_hash(KEY.lane), redis.call('HGETALL', KEY.limits), cjson.decode(ARG.limits)
local used_ms, day_ms = row.asked_ms or row.known_ms or 0, known(row.day_until_ms) or 0
if now - used_ms < tonumber(ARG.unused_ms) or row.paused == 1 then return 0 end
if (row.inflight or 0) > 0 or (row.blocked_ms or 0) > now then return 0 end
for i = 1, #limits, 2 do
  if stated[limits[i]] ~= limits[i + 1] then return 0 end
  if limits[i] == CONFIGURED.day and day_ms > now then return 0 end
end
if known(row.day_rate) and day_ms > now then return 0 end

try_keys({ hash = { KEY.configured, KEY.openers } })
redis.call('SREM', KEY.lanes, ARG.name)
redis.call('HDEL', KEY.configured, ARG.name)
redis.call('HDEL', KEY.openers, ARG.name)
redis.call('UNLINK', KEY.lane, KEY.limits, KEY.owed, KEY.in_flight, KEY.reserved_shares)
redis.call('UNLINK', KEY.headroom_tokens, KEY.headroom_input, KEY.headroom_output)
return 1

-- Acquires or renews leadership; a new holder starts a new epoch, which fences out every earlier one.
-- KEYS: leader clock
-- ARGV: now_ms id lease_ms specs
-- USES: core/full core/time
-- RETURNS: JSON {epoch, until_ms, stepped_ms}; epoch 0 if another scheduler leads. `stepped_ms` is by how much TIME
--          has stepped back since the last bid, whosever that was.
-- `id` is the holder: a scheduler's name and, behind #, a unique token, so that two schedulers of one name are two
-- holders. `specs` is the latest spec version that it reads; a leader without one leaves the former leader's.
-- A leader also leads while Redis is full, so that runs can be cancelled and paused.
write_though_full(KEY.leader)
local now, stepped = note_time(ARG.now_ms, KEY.clock)
local seen, holder, epoch, until_ms = unpack(redis.call('HMGET', KEY.leader, 'id', 'holder', 'epoch', 'until_ms'))
local name = string.match(ARG.id, '^(.*)#%x+$') or ARG.id
local live = until_ms and tonumber(until_ms) > now
if live and (seen ~= name or holder ~= ARG.id) then
  return cjson.encode({ epoch = 0, until_ms = tonumber(until_ms), stepped_ms = stepped })
end
local next_epoch = tonumber(epoch or 0) + (live and epoch and 0 or 1)
local next_until = now + tonumber(ARG.lease_ms)
redis.call('HSET', KEY.leader, 'id', name, 'holder', ARG.id, 'epoch', whole(next_epoch),
  'until_ms', whole(next_until), 'specs', ARG.specs .. ' ' .. ARG.id)
return cjson.encode({ epoch = next_epoch, until_ms = next_until, stepped_ms = stepped })

-- Takes or renews leadership; a new holder starts a new epoch, which fences out every earlier one.
-- KEYS: leader
-- ARGV: now_ms id lease_ms
-- USES: time
-- RETURNS: {epoch, until_ms}; epoch 0 where somebody else leads.
local now = clock(ARG.now_ms)
local holder, epoch, until_ms = unpack(redis.call('HMGET', KEY.leader, 'id', 'epoch', 'until_ms'))
local live = until_ms and tonumber(until_ms) > now
if live and holder ~= ARG.id then return { 0, tonumber(until_ms) } end
local next_epoch = tonumber(epoch or 0) + (live and 0 or 1)
local next_until = now + tonumber(ARG.lease_ms)
redis.call('HSET', KEY.leader, 'id', ARG.id, 'epoch', whole(next_epoch), 'until_ms', whole(next_until))
return { next_epoch, next_until }

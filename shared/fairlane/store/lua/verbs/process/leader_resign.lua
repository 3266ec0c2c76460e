-- Resigns leadership at once, so that a standby need not wait for the lease to lapse.
-- KEYS: leader
-- ARGV: id
-- RETURNS: 1 resigned, 0 not the holder.
local name, holder = unpack(redis.call('HMGET', KEY.leader, 'id', 'holder'))
if holder ~= ARG.id or name ~= (string.match(ARG.id, '^(.*)#%x+$') or ARG.id) then return 0 end
redis.call('HSET', KEY.leader, 'until_ms', 0)
return 1

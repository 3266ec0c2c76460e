-- Gives leadership up at once, so that a standby need not wait for the lease to lapse.
-- KEYS: leader
-- ARGV: id
-- RETURNS: 1 given up, 0 not the holder.
if redis.call('HGET', KEY.leader, 'id') ~= ARG.id then return 0 end
redis.call('HSET', KEY.leader, 'until_ms', 0)
return 1

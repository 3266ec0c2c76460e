-- Deletes a shared key if somebody has changed its type: its content is lost, and it is created again.
-- KEYS: damaged
-- ARGV: wanted
-- RETURNS: 1 deleted, 0 it has the `wanted` type by now, or is gone.
local found = redis.call('TYPE', KEY.damaged).ok
if found == 'none' or found == ARG.wanted then return 0 end
return redis.call('DEL', KEY.damaged)

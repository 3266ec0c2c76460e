-- Puts a request into a team's inbox, also where Redis is full; a long inbox takes no more.
-- KEYS: inbox
-- ARGV: entry channel message
-- RETURNS: 1 taken, 0 where the inbox is too long.
local MOST = 1000 -- requests: the memory that a full server spends on a team
if redis.call('LLEN', KEY.inbox) >= MOST then return 0 end
-- A first write that takes no memory; see core/full, which is for hashes.
redis.call('LTRIM', KEY.inbox, 0, -1)
redis.call('RPUSH', KEY.inbox, ARG.entry)
redis.call('PUBLISH', ARG.channel, ARG.message)
return 1

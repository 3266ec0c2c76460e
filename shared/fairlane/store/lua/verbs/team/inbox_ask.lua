-- Puts a request into a team's inbox, even if Redis is full; an inbox with MOST entries takes no more.
-- KEYS: inbox
-- ARGV: entry channel message
-- RETURNS: 1 taken, 0 if the inbox is too long.
local MOST = 1000 -- requests: bounds the memory that a full server spends on a team
if redis.call('LLEN', KEY.inbox) >= MOST then return 0 end
-- A first write that takes no memory; see core/full, which is for hashes.
redis.call('LTRIM', KEY.inbox, 0, -1)
redis.call('RPUSH', KEY.inbox, ARG.entry)
redis.call('PUBLISH', ARG.channel, ARG.message)
return 1

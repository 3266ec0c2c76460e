-- Reads entries of a team's inbox; an entry longer than `entry_bytes` as ''. An inbox that is no list is deleted.
-- KEYS: inbox
-- ARGV: first most entry_bytes
-- RETURNS: the entries, `most` at most.
local MOST = 100 -- entries read at once: a team may run this verb, and must not block Redis
local kind, first = redis.call('TYPE', KEY.inbox).ok, tonumber(ARG.first)
local most = math.min(tonumber(ARG.most), MOST)
if kind ~= 'list' then
  if kind ~= 'none' then redis.call('UNLINK', KEY.inbox) end
  return {}
end
local entries = {}
for i = first, math.min(first + most, redis.call('LLEN', KEY.inbox)) - 1 do
  local text = redis.call('LINDEX', KEY.inbox, i)
  entries[#entries + 1] = #text <= tonumber(ARG.entry_bytes) and text or ''
end
return entries

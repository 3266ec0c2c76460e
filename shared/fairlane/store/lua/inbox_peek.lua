-- Reads entries of a team's inbox; a longer one than `entry_bytes` as ''. What is no list is taken away.
-- KEYS: inbox
-- ARGV: first most entry_bytes
-- RETURNS: the entries, `most` at most.
local kind, first, most = redis.call('TYPE', KEY.inbox).ok, tonumber(ARG.first), tonumber(ARG.most)
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

-- Has lanes woken as soon as a call frees its slot, and counts the slots in use now.
-- KEYS: starved lanes*
-- ARGV: names
-- RETURNS: the calls that hold a slot, of each of `lanes`
-- `names` is a JSON list of the lanes that wait. A slot that becomes free before is in the count; one that becomes
-- free later wakes them (lib/lane/starved.lua).
local on_slots = {}
for i, lane in ipairs(KEY.lanes) do
  local held, pending = unpack(redis.call('HMGET', lane, 'inflight', 'pending'))
  on_slots[i] = (tonumber(held or '') or 0) - (tonumber(pending or '') or 0)
end
for _, name in ipairs(cjson.decode(ARG.names)) do redis.call('SADD', KEY.starved, name) end
return on_slots

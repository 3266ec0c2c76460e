-- Hands out a stretch of fresh items: queues those that can run, records those that never can.
-- KEYS: leader active state plan results finished done jobs run_lanes spec rows fresh*
-- ARGV: now_ms epoch ref from upto lanes entries over
-- USES: time leader run job
-- RETURNS: 1 fed, 2 fed and the run is finished, 0 not the leader, not running, or the cursor is elsewhere.
-- `lanes` names KEY.fresh; `entries` is a list of "job:input:output:kind" for each; `over` is [[job, state, payload, lane], …],
-- an item's task first.

-- Lua's stack takes a few thousand values at once, and a stretch may be longer.
local CHUNK = 1000

local now = clock(ARG.now_ms)
if not leads(KEY.leader, ARG.epoch, now) then return 0 end
local state = redis.call('HMGET', KEY.state, 'state', 'cursor', 'steps')
if state[1] ~= 'running' or state[2] ~= ARG.from then return 0 end
redis.call('HSET', KEY.state, 'cursor', ARG.upto)
local entries = cjson.decode(ARG.entries)
for i, lane in ipairs(cjson.decode(ARG.lanes)) do
  local count = #entries[i]
  for first = 1, count, CHUNK do
    redis.call('RPUSH', KEY.fresh[i], unpack(entries[i], first, math.min(first + CHUNK - 1, count)))
  end
  redis.call('SADD', KEY.run_lanes, lane)
  redis.call('HINCRBY', KEY.state, 'known:' .. lane, count)
end
local finished = false
for _, each in ipairs(cjson.decode(ARG.over)) do
  conclude(unpack(each))
  if (each[1] + 1) % tonumber(state[3]) == 0 then finished = settle_item(ARG.ref, each[1], now) or finished end
end
return finished and 2 or 1

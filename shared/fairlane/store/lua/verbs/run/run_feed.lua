-- Feeds a batch of fresh items: queues those that can run, records those that never can.
-- KEYS: leader clock active state plan results finished done jobs run_lanes spec rows memory sessions fed dirty queues*
-- ARGV: now_ms epoch channel ref from upto lanes entries over handed joined memory turns
-- USES: core/leader core/time job/job_record run/role_times run/sessions run/turns
-- RETURNS: 1 fed, 2 fed and the run has ended, 0 not the leader, not running, the cursor is elsewhere, or it is not
--          the turn of one of these items.
-- `lanes` names the fresh queues in KEY.queues; `entries` is a list of "job:input:output:kind" for each. `over` is
-- [[job, state, payload, lane], …], item by item, a task first; then the item's entries are its other evaluations.
-- `joined` is [[item, its session as in lib/run/sessions.lua], …]; KEY.queues ends with the queues of a session's
-- evaluations. `memory`: {name: value} that later items read. If conversations go side by side, `turns` names the items
-- (lib/run/turns.lua), and the cursor counts them; else it is [], and the items are those from the cursor on.
local CHUNK = 1000 -- values: Lua's stack takes a few thousand at once, and a batch may be longer

local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) then return 0 end
local state = redis.call('HMGET', KEY.state, 'state', 'cursor', 'steps')
if state[1] ~= 'running' or state[2] ~= ARG.from then return 0 end
if not take_turns(cjson.decode(ARG.turns), tonumber(state[3])) then return 0 end
redis.call('HSET', KEY.state, 'cursor', ARG.upto)
redis.call('HINCRBY', KEY.state, 'handed', ARG.handed)
local lanes, entries, steps = cjson.decode(ARG.lanes), cjson.decode(ARG.entries), tonumber(state[3])
for i, lane in ipairs(lanes) do
  local count = #entries[i]
  for first = 1, count, CHUNK do
    redis.call('RPUSH', KEY.queues[i], unpack(entries[i], first, math.min(first + CHUNK - 1, count)))
  end
  redis.call('SADD', KEY.run_lanes, lane)
  local tasks = 0
  for _, entry in ipairs(entries[i]) do
    if string.match(entry, '^%d+') % steps == 0 then tasks = tasks + 1 end
  end
  redis.call('HINCRBY', KEY.state, 'known:' .. lane, tasks)
  jobs_ready('task', tasks, now)
  jobs_ready('eval', count - tasks, now)
end
for name, value in pairs(cjson.decode(ARG.memory)) do redis.call('HSET', KEY.memory, name, value) end
local finished, new, over, joined = false, false, cjson.decode(ARG.over), {}
for _, each in ipairs(cjson.decode(ARG.joined)) do joined[each[1]] = each[2] end
local hot = { unpack(KEY.queues, #lanes + 1) }
for i, each in ipairs(over) do
  new = record_job(unpack(each)) or new
  local item, following = math.floor(each[1] / steps), over[i + 1]
  if not following or math.floor(following[1] / steps) ~= item then
    -- An item that went first has ended, but its row, which said so, is lost since.
    if new then finished = finish_item(ARG.ref, item * steps, now, joined[item], hot) or finished end
    new = false
  end
end
return finished and 2 or 1

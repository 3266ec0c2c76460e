-- Sets an open run's number of rows; with a plan, it also closes the run: no more rows will come.
-- KEYS: leader clock active state plan results finished done jobs run_lanes spec rows memory sessions fed
-- ARGV: now_ms epoch ref rows items jobs known plan page content digest
-- USES: core/leader core/time core/tries run/close
-- RETURNS: 1 extended, 2 extended and the run has ended, 0 not the leader, not running, not open, or it has more
--          rows already.
-- `items` and `jobs` are its totals then; `known` is {"known:<lane>": evaluations that one more item makes}. `page` is
-- the number of the page that a scheduler has read, with its `content` and `digest`; empty if a client writes pages.
-- This script stores the page and counts its rows, so that no stored row stays uncounted.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) then return 0 end
local state = redis.call('HMGET', KEY.state, 'state', 'open', 'rows', 'items')
if state[1] ~= 'running' or state[2] ~= '1' or tonumber(ARG.rows) < tonumber(state[3]) then return 0 end
try_keys({ set = { KEY.active } })
if ARG.page ~= '' then redis.call('HSET', KEY.rows, ARG.page, ARG.content, 'digest:' .. ARG.page, ARG.digest) end
local more = tonumber(ARG.items) - tonumber(state[4])
redis.call('HSET', KEY.state, 'rows', ARG.rows, 'items', ARG.items, 'jobs', ARG.jobs)
for name, each in pairs(cjson.decode(ARG.known)) do redis.call('HINCRBY', KEY.state, name, whole(each * more)) end
if ARG.plan == '' then return 1 end
redis.call('HDEL', KEY.state, 'open')
redis.call('SET', KEY.plan, ARG.plan)
return close_if_done(ARG.ref, now) and 2 or 1

-- Takes back a lapsed lease, or one whose worker is dead, and puts its job back; past its budget the job fails.
-- KEYS: leader leases leased lane limits owed flying headroom_tokens headroom_input headroom_output dirty starved active state plan results finished done jobs run_lanes spec rows memory sessions budget hot*
-- ARGV: now_ms epoch channel attempt dead_worker max_attempts payload follow joined
-- USES: time leader wake bucket rate lane tokens refund shape climb openings refusal window places latency hints circuit flying lease share teach leave settle tried entry run job session follow
-- RETURNS: 0 nothing to do, 1 put back, 2 failed.
-- A claimed attempt costs one: what kills its worker must end. KEY.hot is the job's own queue, and then those of `follow` and
-- `joined`, which are what attempt_finish takes.
local now = clock(ARG.now_ms)
if not leads(KEY.leader, ARG.epoch, now) then return 0 end
local record = redis.call('HGET', KEY.leased, ARG.attempt)
if not record then
  redis.call('ZREM', KEY.leases, ARG.attempt)
  return 0
end
local lease = cjson.decode(record)
local lapsed = tonumber(redis.call('ZSCORE', KEY.leases, ARG.attempt) or 0) <= now
if not lapsed and not (lease.worker and lease.worker == ARG.dead_worker) then return 0 end

teach(lease, 'none', lease.worker and { input = -1, output = -1, cached = -1 } or nil, 0, '', '', now)
release(lease, ARG.attempt)
settle_budget(KEY.budget, lease, 'none', lease.worker and { input = -1, output = -1 } or nil)
if redis.call('EXISTS', KEY.state) == 0 then return 0 end
leave(lease, lease.worker and { input = -1, output = -1 } or nil)
local _, spent, limited, handle = tried(KEY.jobs, lease.job)
spent = spent + (lease.worker and 1 or 0)
if spent >= tonumber(ARG.max_attempts) then
  conclude(lease.job, 'failed', ARG.payload, lease.lane)
  local queues = follow_up(lease.ref, cjson.decode(ARG.follow), { unpack(KEY.hot, 2) })
  local joined = ARG.joined ~= '' and cjson.decode(ARG.joined) or nil
  settle_item(lease.ref, lease.job, now, joined, { unpack(KEY.hot, queues + 2) })
  return 2
end
note(KEY.jobs, lease.job, lease.number, spent, limited, handle)
redis.call('LPUSH', KEY.hot[1], entry_of(lease))
wake(KEY.dirty, ARG.channel, lease.lane .. '|' .. lease.ref)
return 1

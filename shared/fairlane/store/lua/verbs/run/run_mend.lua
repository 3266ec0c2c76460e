-- Rebuilds the bitmap of a stranded run's ended jobs from their records, if Redis has lost it.
-- KEYS: leader clock active state plan results finished done jobs run_lanes spec rows memory sessions fed dirty
-- ARGV: now_ms epoch channel ref
-- USES: core/leader core/time core/tries run/sessions run/shape
-- RETURNS: 1 mended, 2 mended and the run has ended, 0 nothing to mend, it is not running, or this is not the leader.
-- It ends the items whose last job ended meanwhile. Their sessions end without evaluations, with the last item.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return 0 end
if redis.call('BITCOUNT', KEY.done) >= redis.call('HLEN', KEY.results) then return 0 end
try_keys({ hash = { KEY.sessions }, set = { KEY.active, KEY.dirty, KEY.run_lanes } })
local left, listed, steps, first_session_job = {}, {}, steps_of_run()
for _, item in ipairs(redis.call('LRANGE', KEY.finished, 0, -1)) do listed[tonumber(item)] = true end
for _, field in ipairs(redis.call('HKEYS', KEY.results)) do
  local job = tonumber(field)
  redis.call('SETBIT', KEY.done, job, 1)
  local item = math.floor(job / steps)
  if job < (first_session_job or math.huge) and not listed[item] then left[item] = (left[item] or 0) + 1 end
end
local ended = false
for item, recorded in pairs(left) do
  if recorded == steps then ended = finish_item(ARG.ref, (item + 1) * steps - 1, now, nil, {}) or ended end
end
return ended and 2 or 1

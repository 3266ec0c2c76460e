-- What follows from a task's end: judges that are ready (queued, in KEY.hot order) or over (recorded).
local function follow_up(ref, follow)
  local queue = 0
  for _, step in ipairs(follow) do
    local job, state, value, lane = unpack(step)
    if state == 'ready' then
      queue = queue + 1
      redis.call('RPUSH', KEY.hot[queue], value)
      redis.call('SADD', KEY.run_lanes, lane)
      wake(KEY.dirty, ARG.channel, lane .. '|' .. ref)
    else
      conclude(job, state, value, lane)
    end
  end
end

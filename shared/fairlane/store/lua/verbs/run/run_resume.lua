-- Resumes a run that is paused, or whose jobs are held after refusals: wakes every lane on which it has had jobs.
-- KEYS: leader clock state run_lanes dirty audit
-- ARGV: now_ms epoch channel audit
-- USES: core/audit core/leader core/time core/wake run/forget_refusals
-- RETURNS: 1 resumed, 0 not running, neither paused nor held, or not the leader.
-- `pauses` of a run's state lists its latest pauses as "from-to,", oldest first.
local KEPT = 100 -- pauses that are kept, of 28 bytes each

-- Adds the pause that ends now. Returns 1, or 0 if the run was not paused.
local function note_pause(now)
  local from = redis.call('HGET', KEY.state, 'paused_ms')
  if not from then return 0 end
  local pauses = (redis.call('HGET', KEY.state, 'pauses') or '') .. from .. '-' .. whole(now) .. ','
  local _, count = string.gsub(pauses, ',', '')
  if count > KEPT then pauses = string.gsub(pauses, '^[^,]*,', '') end
  redis.call('HSET', KEY.state, 'pauses', pauses)
  return redis.call('HDEL', KEY.state, 'paused_ms')
end

local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return 0 end
try_audited({ set = { KEY.dirty, KEY.run_lanes } })
if note_pause(now) + forget_refusals() == 0 then return 0 end
redis.call('HDEL', KEY.state, 'paused_by', 'held_lanes')
for _, lane in ipairs(redis.call('SMEMBERS', KEY.run_lanes)) do wake(KEY.dirty, ARG.channel, lane) end
audit()
return 1

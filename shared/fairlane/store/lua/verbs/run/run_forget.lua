-- Deletes a rejected run, of which its team has newer ones.
-- KEYS: leader clock state spec rows runs
-- ARGV: now_ms epoch run
-- USES: core/leader core/time core/tries
-- RETURNS: 1 forgotten, 0 not rejected or not the leader.
if not is_leader(KEY.leader, ARG.epoch, clock(ARG.now_ms, KEY.clock)) then return 0 end
if redis.call('HGET', KEY.state, 'state') ~= 'refused' then return 0 end
try_keys({ zset = { KEY.runs } })
redis.call('UNLINK', KEY.state, KEY.spec, KEY.rows)
redis.call('ZREM', KEY.runs, ARG.run)
return 1

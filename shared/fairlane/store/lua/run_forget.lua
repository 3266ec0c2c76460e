-- Forgets a refused run, of which nobody shall be told any more.
-- KEYS: leader state spec rows runs
-- ARGV: now_ms epoch run
-- USES: time leader
-- RETURNS: 1 forgotten, 0 not refused or not the leader.
if not leads(KEY.leader, ARG.epoch, clock(ARG.now_ms)) or redis.call('HGET', KEY.state, 'state') ~= 'refused' then return 0 end
redis.call('UNLINK', KEY.state, KEY.spec, KEY.rows)
redis.call('ZREM', KEY.runs, ARG.run)
return 1

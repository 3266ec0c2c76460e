-- Notes the handle of an asynchronous call, which its provider runs by itself, and frees the worker's slot.
-- KEYS: leases leased lane in_flight dirty starved jobs
-- ARGV: channel attempt worker handle frees
-- USES: core/tries job/attempt_counts lane/lease lane/starved
-- RETURNS: 1 noted, 0 the lease is not this worker's: nothing has changed.
-- `handle` names the call to the provider; it stays with the job, so that its next attempt resumes that call.
-- `frees` is 1 if the attempt needs no slot any more; it stays in flight on its lane.
local lease = held_lease(ARG.attempt, ARG.worker)
if not lease then return 0 end
try_keys({ hash = { KEY.lane }, set = { KEY.dirty, KEY.starved } })
local spent = attempt_counts(KEY.jobs, lease.job)
spent.handle = ARG.handle
save_attempt_counts(KEY.jobs, lease.job, spent)
if ARG.frees == '1' and not lease.pending then
  lease.pending = 1
  redis.call('HSET', KEY.leased, ARG.attempt, cjson.encode(lease))
  redis.call('HINCRBY', KEY.lane, 'pending', 1)
  wake_starved()
end
return 1

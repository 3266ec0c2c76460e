-- A call is being made by its provider, which is only asked for it from now on: notes which one, and frees the worker's slot.
-- KEYS: leases leased lane flying dirty starved jobs
-- ARGV: channel attempt worker handle frees
-- USES: time wake flying lease tried
-- RETURNS: 1 noted, 0 the lease is not this worker's: nothing has changed.
-- `handle` names the call to the provider; it stays with the job, so that whoever gets it next goes on with that call.
-- `frees` is 1 where the attempt needs no slot any more; it stays in flight on its lane.
local lease = held(ARG.attempt, ARG.worker)
if not lease then return 0 end
local number, spent, limited = tried(KEY.jobs, lease.job)
note(KEY.jobs, lease.job, number, spent, limited, ARG.handle)
if ARG.frees == '1' and not lease.pending then
  lease.pending = 1
  redis.call('HSET', KEY.leased, ARG.attempt, cjson.encode(lease))
  redis.call('HINCRBY', KEY.lane, 'pending', 1)
  free_slot()
end
return 1

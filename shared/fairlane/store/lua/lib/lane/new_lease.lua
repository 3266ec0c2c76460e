-- The leases of jobs' next attempts (lane/lease), as permits grant them. Those of an offer are written together.
-- GIVES: write_lease write_leases
-- USES: core/time job/attempt_counts lane/retries team/in_flight
-- NEEDS: KEY.in_flight KEY.leased KEY.leases

local MOST = 1000 -- values of one command: `unpack` takes some thousands

local function write_all(command, key, values)
  for i = 1, #values, MOST do redis.call(command, key, unpack(values, i, math.min(i + MOST - 1, #values))) end
end

local function append(values, first, second)
  local count = #values
  values[count + 1], values[count + 2] = first, second
end

-- Adds the lease of an offer's job, with a dispatch number above all earlier ones, whose leases it so fences off.
function write_lease(row, lease, offer, until_ms)
  if CALL.leases and CALL.leases.jobs[lease.job] then write_leases() end -- it was queued twice
  local granted = CALL.leases or { offer = offer, jobs = {}, counts = {}, times = {}, records = {} }
  CALL.leases = granted
  local spent = attempt_counts(offer.jobs, lease.job)
  spent.number = spent.number + 1
  lease.number = spent.number
  lease.own = whose_rejections(spent, row)
  if spent.rejected > 0 then lease.rejected_n = spent.rejected_n end
  local id = table.concat({ lease.ref, whole(lease.job), whole(lease.number) }, '/')
  append(granted.records, id, cjson.encode(lease))
  append(granted.times, until_ms, id)
  append(granted.counts, lease.job, counts_text(spent))
  granted.jobs[lease.job] = true
end

-- Writes the leases of an offer, its jobs' counts, and how many of its calls are in flight.
function write_leases()
  local granted = CALL.leases
  if not granted then return end
  CALL.leases = nil
  write_all('ZADD', KEY.leases, granted.times)
  write_all('HSET', KEY.leased, granted.records)
  increment_in_flight(KEY.in_flight, granted.offer.team, #granted.times / 2)
  redis.call('HINCRBY', granted.offer.state, 'in_flight', #granted.times / 2)
  write_all('HSET', granted.offer.jobs, granted.counts)
end

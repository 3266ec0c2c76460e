-- Rejections alike on a lane that has answered the run before. A 4xx is its row's own, unless the provider rejects all
-- calls in these words: a spent budget, a key's cap, a model that was taken away. Whose it is, the next answer shows:
-- until then it costs its job nothing, and enough jobs that are rejected alike open the circuit. In a lane's hash:
--   alike                  status and words of the latest rejections, without digits
--   alike_from             the permit of the first of them; they ended where a call that started later was answered
--   alike_jobs             jobs that met them at their first call
--   rows_own, rows_own_n   words after which others were answered, and how often: these are of their rows
-- GIVES: weigh_rejection
-- USES: run/model_refusals
-- NEEDS: KEY.lane

local LONGEST = 200 -- bytes of a rejection's words: what follows is mostly of the row
local MOST_CALLS = 3 -- of a job: the last rows of a run may be rejected, and no answer shows whose fault that is
local OWN_TIMES = 3 -- times until words count as their rows' own: their rows need no second call
local DOUBTED = 3 -- jobs, mostly rejected, until such words are doubted again

local function without_digits(refusal)
  return string.sub(refusal, 1, 3) .. string.gsub(string.sub(refusal, 4, LONGEST), '%d+', '#')
end

-- {answered_n, circuit, alike, from, jobs, own, own_n} of the lane.
local function read_past()
  local fields = { 'answered_n', 'circuit', 'alike', 'alike_from', 'alike_jobs', 'rows_own', 'rows_own_n' }
  local values = redis.call('HMGET', KEY.lane, unpack(fields))
  return {
    answered_n = tonumber(values[1] or 0), shut = (values[2] or 'closed') ~= 'closed', alike = values[3],
    from = tonumber(values[4] or 0), jobs = tonumber(values[5] or 0), own = values[6],
    own_n = tonumber(values[7] or 0),
  }
end

-- How often these words have been their rows' own; once more if `again`.
local function own_times(past, words, again)
  local times = past.own == words and past.own_n or 0
  if not again then return times end
  redis.call('HSET', KEY.lane, 'rows_own', words, 'rows_own_n', times + 1)
  return times + 1
end

-- Weighs the rejection of a lease's call, whose job has `spent` so much before: an 'attempt' where it is the row's own,
-- else 'unproven'. Where it shows that the lane rejects all calls, `lease.alike` is the first such permit.
function weigh_rejection(lease, spent, refusal)
  local words, past = without_digits(refusal), read_past()
  local same, going_on = past.alike == words, past.from > past.answered_n
  if same and going_on and past.shut and past.jobs >= ENOUGH_REFUSALS then
    lease.alike = past.from
    return 'unproven'
  end
  if lease.learns then return 'attempt' end
  local later = lease.n < past.answered_n
  local times = own_times(past, words, later or same and not going_on and past.jobs > 0)
  if past.shut or later then return 'attempt' end
  local before = spent.attempts + spent.unproven
  if before + 1 >= MOST_CALLS then return 'attempt' end
  if going_on and not same and past.jobs > 1 then return 'unproven' end
  local from, jobs = lease.n, before == 0 and 1 or 0
  if same and going_on then from, jobs = past.from, past.jobs + jobs end
  redis.call('HSET', KEY.lane, 'alike', words, 'alike_from', from, 'alike_jobs', jobs)
  local most = 2 * jobs > lease.n - from + 1 -- calls that are still out had as much time
  if jobs >= ENOUGH_REFUSALS and most then lease.alike = from end
  return times >= OWN_TIMES and not (jobs >= DOUBTED and most) and 'attempt' or 'unproven'
end

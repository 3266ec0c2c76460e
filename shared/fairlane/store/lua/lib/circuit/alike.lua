-- Rejections in the same words, on a lane that has answered the run before. A 4xx is its row's own fault, unless the
-- provider rejects all calls so: a spent budget, a key's cap, a model that was removed. The next answer shows which.
-- Until then it costs its job no attempt, and enough jobs that are rejected alike open the circuit. In a lane's hash:
--   alike, alike_jobs      status and words, without digits, of most of the latest rejections; jobs whose first call
--                          met them, less jobs whose first call met others
--   alike_from, alike_all  the permit of the first rejection since a later call was answered, and how many jobs met a
--                          rejection at their first call since
--   alike_opened           the latest permit when they opened the circuit: until a later call is answered they cost no
--                          job an attempt
--   rows_own, rows_own_n   words that are their rows' fault, as other calls were answered after them, and how often
-- GIVES: weigh_rejection
-- USES: circuit/control circuit/row_constants run/first_constants run/proven
-- NEEDS: KEY.lane

local LONGEST = 200 -- bytes of a rejection's words that are compared: what follows mostly quotes the row
local MOST_CALLS = 3 -- calls of a job: if a run's last rows are rejected, no later answer shows whose fault that is
local DOUBTED = 3 -- jobs rejected in words of rows, most calls among them, until these words are doubted again

local function without_digits(refusal)
  return string.sub(refusal, 1, 3) .. string.gsub(string.sub(refusal, 4, LONGEST), '%d+', '#')
end

-- {answered_n, shut, alike, from, jobs, own, own_n, controls, all, opened, granted} of the lane.
local function read_past()
  local values = redis.call('HMGET', KEY.lane, 'answered_n', 'circuit', 'alike', 'alike_from', 'alike_jobs',
    'rows_own', 'rows_own_n', 'alike_all', 'alike_opened', 'granted', 'own_controls')
  return {
    answered_n = tonumber(values[1] or 0), shut = (values[2] or 'closed') ~= 'closed', alike = values[3],
    from = tonumber(values[4] or 0), jobs = tonumber(values[5] or 0), own = values[6],
    own_n = tonumber(values[7] or 0), all = tonumber(values[8] or 0),
    opened = tonumber(values[9] or 0), granted = tonumber(values[10] or 0), controls = tonumber(values[11] or 0),
  }
end

-- How many times these words were their rows' fault; counts one more if `again`.
local function own_times(past, words, again)
  if past.own ~= words then past.own_n, past.controls = 0, 0 end
  if not again then return past.own_n end
  write_own(words, past.own_n + 1, past.controls)
  return past.own_n + 1
end

-- Counts a rejection, of a job's `first` call (1) or a later one (0). A majority vote finds the most frequent words
-- (Boyer and Moore, 1981): each rejection in other words takes away a vote. Returns the votes for these words, and
-- whether most calls since the first rejection were rejected; calls in flight count as not rejected.
local function vote(past, words, same, going_on, lease, first)
  local from, votes, all = lease.n, 0, 0
  if going_on then from, votes, all = past.from, past.jobs, past.all end
  all = all + first
  local most = 2 * all > lease.n - from + 1
  local others = going_on and not same and votes > 0
  votes = votes + (others and -first or first)
  redis.call('HSET', KEY.lane, 'alike', others and past.alike or words, 'alike_from', from, 'alike_jobs', votes,
    'alike_all', all)
  return others and 0 or votes, most
end

-- Judges the rejection of a lease's call, whose job has `spent` attempts before. Returns 'attempt' if it is the row's
-- fault, else 'unproven'. If it shows that the lane rejects all calls, sets `lease.alike` to `alike_opened`.
function weigh_rejection(lease, spent, refusal)
  local words, past = without_digits(refusal), read_past()
  local same, going_on = past.alike == words, past.from > past.answered_n
  if same and past.opened > past.answered_n then
    lease.alike = past.opened
    return 'unproven'
  end
  if not is_proven(lease, past.shut) then return 'attempt' end
  local later = lease.n < past.answered_n
  local times = own_times(past, words, later or same and not going_on and past.jobs > 0)
  if later or past.shut and (lease.probe or past.opened <= past.answered_n) then return 'attempt' end
  if past.shut then return 'unproven' end -- its call started before rejections in other words shut the lane
  local before = spent.attempts + spent.unproven
  if before + 1 >= MOST_CALLS then return 'attempt' end
  local jobs, most = vote(past, words, same, going_on, lease, before == 0 and 1 or 0)
  local trusted = doubt_factor(past.controls)
  if jobs >= ENOUGH_REFUSALS * trusted and most then
    lease.alike = past.granted
    redis.call('HSET', KEY.lane, 'alike_opened', past.granted)
  end
  local own = times >= OWN_TIMES or before > 0 and times > 0
  return own and not (jobs >= DOUBTED * trusted and most) and 'attempt' or 'unproven'
end

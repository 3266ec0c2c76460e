-- Learns how many tokens calls use, from their first answers on: output tokens, and input tokens as a multiple of their
-- estimate. A run's hash keeps it by call kind, in 'tokens:<kind>': the numbers of FIELDS. The lane keeps the same over
-- all runs, from which a new run starts: <which>_n, _mean, _var, where <which> is answer or prompt; and
--   answer_miss, prompt_miss   mean square, in tokens, by which calls missed what was expected of their call kind
-- GIVES: expected_tokens learn_tokens most_tokens
-- USES: lane/length_constants

local FIELDS = { 'n', 'mean', 'var', 'peak', 'longest', 'input_n', 'input_mean', 'input_var', 'excess' }

local read_before = {}
local function lengths_of(state, kind)
  local name = state .. ' ' .. kind
  if read_before[name] then return read_before[name] end
  local found, i = {}, 0
  for value in string.gmatch(redis.call('HGET', state, 'tokens:' .. kind) or '', '%S+') do
    i = i + 1
    if FIELDS[i] then found[FIELDS[i]] = tonumber(value) end
  end
  for _, field in ipairs(FIELDS) do found[field] = found[field] or 0 end
  read_before[name] = found
  return found
end

local function save_lengths(state, kind, found)
  local texts = {}
  for i, field in ipairs(FIELDS) do texts[i] = string.format('%.10g', found[field]) end
  redis.call('HSET', state, 'tokens:' .. kind, table.concat(texts, ' '))
end

-- Mean and variance after one value more, where the latest REMEMBERED count (West 1979; Finch 2009).
local function add(n, mean, var, value)
  n = math.min(n + 1, REMEMBERED)
  local off = value - mean
  return n, mean + off / n, (1 - 1 / n) * (var + off * off / n)
end

-- The mean and variance of two samples together (Chan, Golub and LeVeque 1983), of which the lane's counts as no more
-- than PRIOR_CALLS, and how many calls that is. Few calls show little of their spread, so that the
-- usual one, `usual(mean, calls)`, counts as one call more.
local function together(n, mean, var, lane, which, usual)
  local before = math.min(PRIOR_CALLS, lane[which .. '_n'] or 0)
  local count = n + before
  if count == 0 then return nil, nil, 0 end
  local off, share = (lane[which .. '_mean'] or 0) - mean, before / count
  local both = share * (lane[which .. '_var'] or 0) + (1 - share) * var + share * (1 - share) * off * off
  mean = mean + share * off
  return mean, (count * both + usual(mean, count) ^ 2) / (count + 1), count
end

-- The tokens that a job is expected to use, {input, output}, and how sure that is: {input, output (variances), peak
-- (by how much single answers exceed the mean), calls (that is learned from)}. An answer that the parameters limit is
-- no longer than that.
function expected_tokens(lane, entry, state)
  local found = lengths_of(state, entry.kind)
  local function usual_prompt(mean) return USUAL_PROMPT * mean end
  local function usual_answer(mean, calls)
    return USUAL_ANSWER * math.max(mean, PART_OF_ESTIMATE * entry.output / calls)
  end
  local share, share_var = together(found.input_n, found.input_mean, found.input_var, lane, 'prompt', usual_prompt)
  local output, var, calls = together(found.n, found.mean, found.var, lane, 'answer', usual_answer)
  local spread = { input = (share_var or 0) * entry.input ^ 2, output = var or 0, calls = calls, peak = 0 }
  if output then
    if not entry.guessed then
      output = math.min(output, entry.output)
      spread.output = math.min(var, output * (entry.output - output)) -- Bhatia and Davis 2000
    end
    spread.peak = math.max(0, found.peak - output)
  end
  return { input = (share or 1) * entry.input, output = output or entry.output }, spread
end

-- The tokens that a budget reserves for a job, {input, output}: those that it cannot exceed. A prompt's bound that
-- proved too low is raised as much. Where nothing limits the answer, it is a guess, or twice the longest answer so far.
function most_tokens(entry, state)
  local found = lengths_of(state, entry.kind)
  return {
    input = math.ceil(math.max(entry.input, entry.most) * math.max(1, found.excess)),
    output = entry.guessed and math.max(entry.output, 2 * found.longest) or entry.output,
  }
end

local function learn_lane(lane, change, which, value, off)
  local n, mean, var = lane[which .. '_n'] or 0, lane[which .. '_mean'] or 0, lane[which .. '_var'] or 0
  change[which .. '_n'], change[which .. '_mean'], change[which .. '_var'] = add(n, mean, var, value)
  if off then
    local miss = lane[which .. '_miss'] or off * off
    change[which .. '_miss'] = miss + (off * off - miss) / MISS_CALLS
  end
end

-- Learns from a call that used `output` tokens and was charged for `input` of them (-1: unknown), of which `total` were
-- in its prompt. Returns whether less is expected of such calls now, or more surely.
function learn_tokens(lane, change, lease, state, input, output, total)
  local found, fell = lengths_of(state, lease.kind), false
  if output >= 0 and lease.output > 0 then
    local off = found.n > 0 and output - found.mean
    fell = found.n < FEW_CALLS or off < 0
    learn_lane(lane, change, 'answer', output, off)
    found.n, found.mean, found.var = add(found.n, found.mean, found.var, output)
    found.peak = math.max(output, found.peak - (found.peak - found.mean) / REMEMBERED)
    found.longest = math.max(found.longest, output)
  end
  if input >= 0 and lease.input > 0 then
    local share = math.max(LEAST_SHARE, math.min(MOST_INPUT_SHARE, input / lease.input))
    local off = found.input_n > 0 and (share - found.input_mean) * lease.input
    fell = fell or off and off < 0
    learn_lane(lane, change, 'prompt', share, off)
    found.input_n, found.input_mean, found.input_var = add(found.input_n, found.input_mean, found.input_var, share)
    found.excess = math.max(found.excess, total / math.max(lease.input, lease.most or 0))
  end
  save_lengths(state, lease.kind, found)
  return fell
end

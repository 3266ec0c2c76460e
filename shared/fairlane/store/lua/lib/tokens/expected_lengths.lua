-- How many tokens a job is expected to use, and how many it may use at most. Both follow from what was learned of its
-- call kind (lib/tokens/lengths.lua).
-- GIVES: expected_tokens most_tokens
-- USES: tokens/length_constants tokens/lengths

-- Combines the samples of a run and of its lane (Chan, Golub and LeVeque 1983). Returns mean, variance and number of
-- calls. The lane's sample counts as at most PRIOR_CALLS. A few calls show little of their spread, so the usual spread,
-- `usual(mean, calls)`, counts as one more call.
local function together(n, mean, var, lane, which, usual)
  local before = math.min(PRIOR_CALLS, lane[which .. '_n'] or 0)
  local count = n + before
  if count == 0 then return nil, nil, 0 end
  local off, share = (lane[which .. '_mean'] or 0) - mean, before / count
  local both = share * (lane[which .. '_var'] or 0) + (1 - share) * var + share * (1 - share) * off * off
  mean = mean + share * off
  return mean, (count * both + usual(mean, count) ^ 2) / (count + 1), count
end

-- Returns the tokens that a job is expected to use, {input, output}, and their spread: {input, output (variances), peak
-- (by how much single answers exceed the mean), calls (how many it was learned from)}. Parameters may limit the answer.
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

-- The tokens that a budget reserves for a job, {input, output}: the most that it can use. A prompt's bound that proved
-- too low is raised accordingly. If nothing limits the answer, a guess counts, or twice the longest answer so far.
function most_tokens(entry, state)
  local found = lengths_of(state, entry.kind)
  return {
    input = math.ceil(math.max(entry.input, entry.most) * math.max(1, found.excess)),
    output = entry.guessed and math.max(entry.output, 2 * found.longest) or entry.output,
  }
end

-- Learns from a call how many tokens calls of its kind use (lib/tokens/lengths.lua).
-- GIVES: learn_tokens
-- USES: tokens/length_constants tokens/lengths

-- Mean and variance after one more value, over about the latest REMEMBERED (West 1979; Finch 2009).
local function add(n, mean, var, value)
  n = math.min(n + 1, REMEMBERED)
  local off = value - mean
  return n, mean + off / n, (1 - 1 / n) * (var + off * off / n)
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
-- in its prompt. Returns whether such calls are now expected to use less, or with less spread.
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

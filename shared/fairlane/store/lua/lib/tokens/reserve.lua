-- The charge of a job on the token axes when it starts.
-- GIVES: reserve
-- USES: tokens/expected_lengths

-- Returns the charge of a job that starts, {input, output}: the expected usage of such calls (lib/tokens/lengths.lua),
-- and its spread; that is nil if the provider charges what is reserved.
function reserve(lane, limits, entry, state)
  local factor = limits.output_factor or 1
  if limits.charge == 'reserved' then return { input = entry.input, output = math.ceil(entry.output * factor) } end
  local tokens, spread = expected_tokens(lane, entry, state)
  spread.output, spread.peak = spread.output * factor ^ 2, spread.peak * factor
  spread.guessed = entry.guessed and spread.calls == 0 or nil
  return { input = math.ceil(tokens.input), output = math.ceil(tokens.output * factor) }, spread
end

-- How many tokens calls use, from their first answers on: output tokens, and input tokens as a multiple of their
-- estimate. A run's hash keeps it by call kind, in 'tokens:<kind>': the numbers of FIELDS. The lane keeps the same over
-- all runs, from which a new run starts: <which>_n, _mean, _var, where <which> is answer or prompt; and
--   answer_miss, prompt_miss   mean square deviation, in tokens, of calls from what was expected of their kind
-- GIVES: lengths_of save_lengths
-- USES: run/state_fields

local FIELDS = { 'n', 'mean', 'var', 'peak', 'longest', 'input_n', 'input_mean', 'input_var', 'excess' }

-- Read once a script.
function lengths_of(state, kind)
  local name = state .. ' ' .. kind
  CALL.lengths = CALL.lengths or {}
  if CALL.lengths[name] then return CALL.lengths[name] end
  local found, i = {}, 0
  for value in string.gmatch(field_of(state, 'tokens:' .. kind) or '', '%S+') do
    i = i + 1
    if FIELDS[i] then found[FIELDS[i]] = tonumber(value) end
  end
  for _, field in ipairs(FIELDS) do found[field] = found[field] or 0 end
  CALL.lengths[name] = found
  return found
end

function save_lengths(state, kind, found)
  set_field(state, 'tokens:' .. kind, string.format(
    '%.10g %.10g %.10g %.10g %.10g %.10g %.10g %.10g %.10g', found.n, found.mean, found.var, found.peak, found.longest,
    found.input_n, found.input_mean, found.input_var, found.excess))
end

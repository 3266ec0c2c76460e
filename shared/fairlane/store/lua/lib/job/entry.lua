-- A queued job as text: "job:input:output:kind:most:guessed", with its number, its expected tokens and its call kind.
-- Where the last two are 0 they are left out: a run may queue millions of jobs.
--   most      the most input tokens that it can have (0: the same as expected)
--   guessed   1 if its parameters do not limit its output
-- GIVES: parse_entry entry_text
-- USES: core/time

function parse_entry(text)
  local job, input, output, kind, rest = string.match(text, '^(%d+):(%d+):(%d+):(%d+)(.*)')
  local most, guessed = string.match(rest, '^:(%d+):(%d)')
  return {
    job = tonumber(job), input = tonumber(input), output = tonumber(output), kind = tonumber(kind),
    most = tonumber(most or 0), guessed = guessed == '1',
  }
end

-- The entry from which a lease was made.
function entry_text(lease)
  local most, guessed = lease.most or 0, lease.guessed or 0
  local numbers = { lease.job, lease.input, lease.output, lease.kind }
  if most > 0 or guessed > 0 then numbers[5], numbers[6] = most, guessed end
  for i, number in ipairs(numbers) do numbers[i] = whole(number) end
  return table.concat(numbers, ':')
end

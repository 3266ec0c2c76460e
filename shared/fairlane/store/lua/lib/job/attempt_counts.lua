-- A job's counts, kept from its first dispatch to its end, as text: "dispatches:attempts:rate limits". More fields may
-- A job's counts, kept from its first dispatch to its end, as text: "dispatches:attempts:rate limits". More fields may
-- follow, in this order:
--   the handle of an asynchronous call in flight (attempt_await; it has no colons)
--   failures that may be the lane's fault, and the last permit among them (lib/run/blame.lua)
--   rejections: how many, the permit of the last, how many the job met alone (lib/job/rejections.lua)
--   paid answers that were not kept: how many, and their input, output and cached tokens
--   when the first failure ended that may be the lane's fault (ms, server time; absent without one)
-- GIVES: attempt_counts counts_text save_attempt_counts
-- USES: core/time

local FURTHER = { 'unproven', 'last', 'rejected', 'rejected_n', 'alone' }

-- {number, attempts, limited, handle, unproven, last, rejected, rejected_n, alone, unkept, failed_ms}; `handle` may be
-- nil, `unkept` is {answers, input, output, cached}, and `failed_ms` is 0 if unknown.
function attempt_counts(jobs, job)
  local record = redis.call('HGET', jobs, job) or '0:0:0'
  local number, attempts, limited, handle, rest = string.match(record, '^(%d+):(%d+):(%d+):?([^:]*)(.*)')
  local counts = {
    number = tonumber(number), attempts = tonumber(attempts), limited = tonumber(limited),
    handle = handle ~= '' and handle or nil, unproven = 0, last = 0, rejected = 0, rejected_n = 0, alone = 0,
    unkept = { 0, 0, 0, 0 }, failed_ms = 0,
  }
  if rest == '' then return counts end
  local each = string.gmatch(rest, ':(%d+)')
  for _, field in ipairs(FURTHER) do counts[field] = tonumber(each() or 0) end
  for place = 1, 4 do counts.unkept[place] = tonumber(each() or 0) end
  counts.failed_ms = tonumber(each() or 0)
  return counts
end

function counts_text(spent)
  local parts = { whole(spent.number), whole(spent.attempts), whole(spent.limited), spent.handle }
  if spent.unproven > 0 or spent.rejected > 0 or spent.unkept[1] > 0 then
    parts[4] = spent.handle or ''
    for _, field in ipairs(FURTHER) do parts[#parts + 1] = whole(spent[field]) end
    for _, count in ipairs(spent.unkept) do parts[#parts + 1] = whole(count) end
    if spent.failed_ms > 0 then parts[#parts + 1] = whole(spent.failed_ms) end
  end
  return table.concat(parts, ':')
end

function save_attempt_counts(jobs, job, spent)
  redis.call('HSET', jobs, job, counts_text(spent))
end

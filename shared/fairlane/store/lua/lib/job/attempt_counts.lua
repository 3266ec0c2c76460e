-- A job's counts, kept from its first dispatch to its end, as text: "dispatches:attempts:rate limits". More fields may
-- follow: the handle of an asynchronous call that its provider still makes (attempt_await; it has no colons), the
-- failures that may be the lane's fault, the last permit among those failures (lib/run/blame.lua), and of its
-- rejections how many there were, the permit of the last, and how many the job met alone (lib/job/rejections.lua).
-- Later versions may append fields.
-- GIVES: attempt_counts save_attempt_counts
-- USES: core/time

local FURTHER = { 'unproven', 'last', 'rejected', 'rejected_n', 'alone' }

-- {number, attempts, limited, handle, unproven, last, rejected, rejected_n, alone}; `handle` may be nil.
function attempt_counts(jobs, job)
  local record = redis.call('HGET', jobs, job) or '0:0:0'
  local number, attempts, limited, handle, rest = string.match(record, '^(%d+):(%d+):(%d+):?([^:]*)(.*)')
  local counts = {
    number = tonumber(number), attempts = tonumber(attempts), limited = tonumber(limited),
    handle = handle ~= '' and handle or nil, unproven = 0, last = 0, rejected = 0, rejected_n = 0, alone = 0,
  }
  if rest == '' then return counts end
  local each = string.gmatch(rest, ':(%d+)')
  for _, field in ipairs(FURTHER) do counts[field] = tonumber(each() or 0) end
  return counts
end

function save_attempt_counts(jobs, job, spent)
  local parts = { whole(spent.number), whole(spent.attempts), whole(spent.limited), spent.handle }
  if spent.unproven > 0 or spent.rejected > 0 then
    parts[4] = spent.handle or ''
    for _, field in ipairs(FURTHER) do parts[#parts + 1] = whole(spent[field]) end
  end
  redis.call('HSET', jobs, job, table.concat(parts, ':'))
end

-- A job's counts, kept from its first dispatch to its end, as text: "dispatches:attempts:rate limits". Three more
-- fields may follow: the handle of an asynchronous call that its provider still makes (attempt_await; it has no
-- colons), the failures that may be the lane's fault (lib/run/blame.lua), and the last permit among those failures.
-- Later versions may append fields.
-- GIVES: attempt_counts save_attempt_counts
-- USES: core/time

-- {number, attempts, limited, handle, unproven, last}.
function attempt_counts(jobs, job)
  local record = redis.call('HGET', jobs, job) or '0:0:0'
  local number, attempts, limited, handle, unproven, last =
    string.match(record, '^(%d+):(%d+):(%d+):?([^:]*):?(%d*):?(%d*)')
  return {
    number = tonumber(number), attempts = tonumber(attempts), limited = tonumber(limited),
    handle = handle ~= '' and handle or nil, unproven = tonumber(unproven) or 0, last = tonumber(last) or 0,
  }
end

function save_attempt_counts(jobs, job, spent)
  local parts = { whole(spent.number), whole(spent.attempts), whole(spent.limited), spent.handle }
  if spent.unproven > 0 then
    parts[4], parts[5], parts[6] = spent.handle or '', whole(spent.unproven), whole(spent.last)
  end
  redis.call('HSET', jobs, job, table.concat(parts, ':'))
end

-- Infers the axis of a header that names none: the remainder of a request limit falls by one with each call of the
-- lane, that of a token limit by the call's tokens. A provider may report different axes under the same name, so
-- evidence counts only for similar limits. In a lane's hash:
--   unnamed_limit, unnamed_left    the last such report
--   unnamed_start, _end, _done     the lane's calls at that moment, by each way of counting them (reported/others)
--   unnamed_votes                  reports that fell as tokens do, less those that fell as requests do
--   unnamed_requests, _tokens      the latest limit that is known to be of that axis
-- GIVES: axis_of_unnamed
-- USES: lane/state reported/unnamed_constants

local function same_limit(limit, other)
  return other and limit <= SAME_KIND * other and other <= SAME_KIND * limit
end

local function known_axis(row, limit)
  for _, axis in ipairs({ 'requests', 'tokens' }) do
    if same_limit(limit, known(row['unnamed_' .. axis])) then return axis end
  end
  return nil
end

-- The most calls of the lane that may lie between the last report and this one.
local function calls_between(row, lease)
  local granted, most = row.granted or 0, 1
  for way, count in pairs({ start = lease.n, ['end'] = granted, done = granted - (row.inflight or 0) }) do
    most = math.max(most, count - (row['unnamed_' .. way] or 0))
    row['unnamed_' .. way] = count
  end
  return most
end

-- The average tokens of an answered call.
local function tokens_a_call(row)
  local calls = math.max(1, row.granted or 1)
  return (row.spent_input or 0) / calls + (known(row.answer_mean) or (row.spent_output or 0) / calls)
end

-- The vote of one report: above 0 for a limit of tokens, below 0 for one of requests, 0 if undecided.
local function vote(limit, fell, calls, tokens)
  if tokens < FEW_TOKENS then return 0 end
  if limit < tokens then return -KNOWN_AT end -- a limit of tokens would let no call through in a minute
  if fell >= math.max(FEW_TOKENS * calls, PART_OF_CALL * tokens) then return 1 end
  return fell >= 1 and fell <= calls and -1 or 0
end

-- Forgets a limit that was taken to be of this axis: it is of another.
local function take_back(row, axis)
  if row[axis .. '_reported'] == row['unnamed_' .. axis] then
    row[axis .. '_reported'], row[axis .. '_foreign'], row[axis .. '_fullest'], row[axis .. '_left_ms'] = '', 0, 0, 0
  end
  row['unnamed_' .. axis] = ''
end

-- The axis of an unnamed report of `limit` a minute, of which `left` are left (-1: unknown); nil while undecided.
function axis_of_unnamed(row, limit, left, lease)
  local same = same_limit(limit, known(row.unnamed_limit))
  local fell, calls = (known(row.unnamed_left) or left) - left, calls_between(row, lease)
  local votes, was = same and row.unnamed_votes or 0, known_axis(row, limit)
  if left < 0 or not same then fell = 0 end
  if was and not same then votes = was == 'tokens' and KNOWN_AT or -KNOWN_AT end
  votes = math.max(-MOST_VOTES, math.min(MOST_VOTES, votes + vote(limit, fell, calls, tokens_a_call(row))))
  row.unnamed_limit, row.unnamed_left, row.unnamed_votes = limit, left >= 0 and left or '', votes
  local axis = votes >= KNOWN_AT and 'tokens' or votes <= -KNOWN_AT and 'requests' or was
  if was and axis ~= was then take_back(row, was) end
  if axis then row['unnamed_' .. axis] = limit end
  return axis
end

-- The fields of a lane's hash with what it has learned of its provider's limits. They are saved at a 429 that may be
-- one team's fault, and restored if it was.
-- GIVES: learned_fields restore_learned
-- USES: lane/counts lane/state

local OF_AXIS = {
  'est', 'var', 'est_ms', 'age_ms', 'back_ms', 'climb_ms', 'slow', 'slope', 'window', 'cost', 'cost_now', 'put_off',
  'steady', 'strays', 'stray_from', 'strays_wanted', 'top', 'top_until_ms', 'top_for_ms', 'deep', 'shown',
  'by_header', 'excuses', 'excused', 'edge', 'edge_lo', 'edge_hi', 'edge_ms', 'edges', 'long_ms', 'reported',
  'reported_ms', 'reported_n', 'left', 'left_ms', 'left_uncertain', 'left_start', 'left_end', 'left_done',
  'left_begun', 'left_refills', 'fullest', 'foreign', 'foreign_ms', 'free_to', 'free_ms', 'refills', 'flat_ms',
  'renews_ms', 'lift', 'lift_ms', 'open', 'open_n', 'open_ms', 'idle_ms', 'wait_ms', 'edge_n', 'minute_n',
  'earlier_n',
}
local OF_LANE = {
  'window', 'window_by', 'window_age_ms', 'window_step', 'window_base', 'window_from', 'window_top', 'widen_ms',
  'fitted', 'beyond', 'unprovoked', 'given_up', 'given_up_usual_ms', 'floor', 'floors', 'floors_wanted', 'low',
  'under', 'over', 'sign', 'shut', 'first_ms', 'first', 'first_refused_n', 'last_ms', 'last', 'refusals', 'crowd',
  'again_ms', 'after_ms', 'refused_n', 'refused_on', 'refusal_ms', 'pace_then', 'est_then', 'epoch', 'shown_then',
  'novice', 'risen_then', 'stray', 'age_then', 'idle_then', 'in_window', 'last_minute', 'ground', 'ground_from',
  'ground_growth', 'proved', 'signed_ms', 'streak', 'concurrency_reported', 'at_once_named', 'day_rate', 'day_shut_ms',
  'unnamed_limit', 'unnamed_left', 'unnamed_start', 'unnamed_end', 'unnamed_done', 'unnamed_votes',
  'unnamed_requests', 'unnamed_tokens', 'opening_n', 'openings', 'quota_n', 'quota_left', 'quota_until_ms',
  'quota_unsent', 'quota_fell', 'quota_end_ms', 'quota_most', 'quota_full', 'quota_proved', 'quota_try', 'quota_lies',
  'early', 'early_n', 'early_ms', 'early_admitted', 'early_wanted', 'chance', 'chance_calls', 'chance_odds', 'chance_n',
  'chance_from', 'chance_429s', 'check_rate', 'check_n', 'check_calls', 'check_429s', 'check_share', 'check_kept',
  'check_seen', 'run_of_429s', 'wait_n', 'wait_until_ms', 'wait_odds', 'wait_vain', 'wait_try_ms', 'wait_tried_ms',
  'wait_tried_n', 'growth_rate', 'growth_ms', 'growth_slope', 'growth_n', 'growth_count',
  'growth_began_ms',
}

local function each_field(visit)
  for _, field in ipairs(OF_LANE) do visit(field) end
  for _, axis in ipairs(AXES) do
    for _, part in ipairs(OF_AXIS) do visit(axis .. '_' .. part) end
  end
end

-- JSON of these fields of a lane.
function learned_fields(lane)
  local kept = {}
  each_field(function(field) kept[field] = lane[field] end)
  return cjson.encode(kept)
end

-- Restores the lane's fields from `text`. Its buckets earn from `from_ms` on, unless calls started later. Counting
-- starts anew: calls that the lane admitted since then measure nothing.
function restore_learned(key, text, from_ms, now)
  local lane, kept, gone = read_hash(key), cjson.decode(text), {}
  each_field(function(field)
    if lane[field] and kept[field] == nil then gone[#gone + 1] = field end
  end)
  local earns_ms = (lane.started_ms or 0) > from_ms and now or from_ms
  for _, axis in ipairs(AXES) do
    if (lane[axis .. '_ms'] or 0) > earns_ms then kept[axis .. '_ms'] = earns_ms end
    if known(kept[axis .. '_est']) then
      mark_opening(kept, axis, now, admitted(lane, axis), lane.granted)
      kept[axis .. '_slack_ms'], kept[axis .. '_saved'] = 0, 1
    end
  end
  if kept.shut then kept.shut = '' end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  write_hash(key, kept)
end

-- Spends a lane's refusal budget: the share of its calls that may be rejected while it probes for a higher limit. The
-- budget pays for a probe every cost / budget calls, where cost is its 429s: often on fast lanes, rarely on slow ones.
-- Each probe that finds nothing new delays the next, up to a bound. Once the limit has moved, the lane probes as often
-- as the budget allows again.
--   <axis>_cost, _cost_now   429s that an epoch brings, smoothed, and those of the present epoch
--   <axis>_put_off           factor by which probes that found nothing new have delayed the next
--   <axis>_back_ms           ms that the lane takes back to a sure estimate (lib/rate/curve.lua)
--   <axis>_slow              1 if the way beyond the estimate is as slow as the way back
--   <axis>_window            1 if the limit may be a window: more than the estimate then proves no rise
-- GIVES: count_cost put_probe_off probe_often plan_probe
-- USES: lane/counts rate/constants reported/window_detector

-- Counts a 429 of an axis; `new` where it begins an epoch. An epoch counts as at most twice the usual cost: a provider
-- may shed many calls at once.
function count_cost(row, axis, new)
  local spent, cost = row[axis .. '_cost_now'] or 0, row[axis .. '_cost'] or 1
  row[axis .. '_cost_now'] = new and 1 or spent + 1
  if new and spent > 0 then row[axis .. '_cost'] = cost + COST_WEIGHT * (math.min(spent, 2 * cost) - cost) end
end

-- Delays the next probe: one found the limit where it was.
function put_probe_off(row, axis)
  row[axis .. '_put_off'] = math.min(PUT_OFF_MOST, PUT_OFF * (row[axis .. '_put_off'] or 1))
end

-- Lets probes come as often as the budget allows: the limit has moved.
function probe_often(row, axis)
  row[axis .. '_put_off'] = 1
end

-- Plans the next probe after a measurement; `budget` is a share of calls. The time between two probes passes mostly
-- on the way back to the estimate; probing itself takes some seconds. A probe also costs `waited_ms` of the rate. The
-- way beyond the estimate is as slow as the way back in two cases: if the budget pays for no faster one, and if a
-- window may shut for long.
function plan_probe(row, axis, budget, waited_ms, now)
  local calls = (row[axis .. '_cost'] or 1) / (budget or REFUSAL_BUDGET) * (row[axis .. '_put_off'] or 1)
  local apart_ms, window = calls * 60000 / calls_a_minute(row, axis), may_be_window(row, axis, now)
  apart_ms = math.max(apart_ms, waited_ms / WAITED)
  local slow = window or apart_ms > 2 * BACK_MS
  local seldom_ms = math.max(BACK_MS, waited_ms / WAITED / 2)
  row[axis .. '_back_ms'] = slow and seldom_ms or math.max(apart_ms / 2, apart_ms - PROBE_TAKES_MS)
  row[axis .. '_slow'], row[axis .. '_window'] = slow and 1 or 0, window and 1 or 0
end

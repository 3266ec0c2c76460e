-- The token buckets of a lane, one for each limited axis:
--   <axis>_level, <axis>_ms   what was earned and not spent, in units, and when that was
--   <axis>_spilled            on token axes, what was earned beyond full since the latest charge. It pays first for
--                             calls in flight that use more than expected
-- GIVES: buckets_of raise_level lower_level empty_buckets
-- USES: buckets/arrival_bounds buckets/depth buckets/token_bucket lane/limits lane/state rate/rate

-- The buckets that limit a lane, in the order of AXES and brought up to now: {axis, pace, full, level, spilled,
-- from_ms}, in units and units a millisecond. `burst_ms`: what a bucket may save; `configured`: an operator set it;
-- `shown`: headers show it. `spare_ms`: half of what a configured burst keeps for late calls.
function buckets_of(lane, limits, now)
  local found, share = {}, ramp(lane, now)
  for _, axis in ipairs(AXES) do
    local per_minute, configured = allowed(lane, limits, axis)
    if per_minute then
      local earns = pace_of(axis == 'requests' and per_minute * share or per_minute)
      configured = share == 1 and configured
      local burst, first_ms, shown = permit_burst_ms(limits), nil, nil
      if not configured then
        local deep_ms, most_ms = nil, limits[CONFIGURED[axis]] and burst or math.huge
        deep_ms, first_ms, shown = learned_depth(lane, limits, axis, per_minute)
        burst = math.min(deep_ms, most_ms) -- a reported limit lowers a configured one, and deepens nothing
      end
      local single = configured and axis == 'requests' and holds_one_call(earns, limits)
      if single then earns = pace_of_single_calls(earns) end
      local full = capacity(earns, burst)
      local level, spilt = refill(lane[axis .. '_level'], lane[axis .. '_ms'], earns, burst, now)
      local spilled = axis ~= 'requests' and math.min(full, (lane[axis .. '_spilled'] or 0) + spilt) or 0
      local from_ms = math.max(now, lane[axis .. '_ms'] or now) -- nothing is earned before
      found[#found + 1] = {
        axis = axis, pace = earns, full = full, level = level, spilled = level < full and 0 or spilled,
        from_ms = from_ms, burst_ms = burst, first_ms = first_ms, shown = shown, single = single,
        configured = configured, spare_ms = configured and ((limits.burst_ms or 1000) - burst) / 2 or 0,
      }
    end
  end
  return found
end

-- Raises the level of a bucket of `buckets_of` by `units` that were charged and not used (negative: used and not
-- charged), up to full. What has spilled pays first. Returns by how much the level has risen. Nothing else but time
-- raises it.
function raise_level(change, bucket, units, now)
  local axis, sum = bucket.axis, bucket.level + bucket.spilled + units
  local level = math.min(bucket.full, sum)
  change[axis .. '_level'], change[axis .. '_ms'] = level, now
  if axis ~= 'requests' then change[axis .. '_spilled'] = math.min(bucket.full, math.max(0, sum - bucket.full)) end
  return level - bucket.level
end

-- Lowers the level of a bucket of `buckets_of` to `most`, if it is higher. The bucket earns again from `at_ms` on.
function lower_level(change, bucket, most, at_ms)
  local axis = bucket.axis
  change[axis .. '_level'], change[axis .. '_ms'] = math.min(bucket.level, most), at_ms
  if axis ~= 'requests' then change[axis .. '_spilled'] = most < bucket.level and 0 or bucket.spilled or 0 end
end

-- Empties all buckets in `change`, so that no burst follows; debts stay.
function empty_buckets(lane, limits, change, now)
  local found = {}
  for _, bucket in ipairs(buckets_of(lane, limits, now)) do found[bucket.axis] = bucket end
  for _, axis in ipairs(AXES) do
    lower_level(change, found[axis] or { axis = axis, level = 0 }, math.min(0, change[axis .. '_level'] or 0), now)
  end
end

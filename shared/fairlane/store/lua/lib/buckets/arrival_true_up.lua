-- Trues up the buckets of arrivals (lib/buckets/arrivals.lua) by the outcome of a call.
-- GIVES: refund_arrival cap_levels_to_arrivals
-- USES: lane/state

-- Refunds units to the bucket of arrivals, up to its depth.
function refund_arrival(lane, change, axis, units)
  local level, depth = change[axis .. '_sent'], lane[axis .. '_depth']
  if level and depth then change[axis .. '_sent'] = math.min(depth, level + units) end
end

-- After a claim that came too late: lowers the buckets of permits to those of arrivals. Permits that were granted
-- sooner would only be returned.
function cap_levels_to_arrivals(lane, change, now)
  for _, axis in ipairs(AXES) do
    local pace, sent, level = tonumber(lane[axis .. '_pace'] or ''), lane[axis .. '_sent'], change[axis .. '_level']
    if pace and sent and level then
      sent = math.min(lane[axis .. '_depth'], sent + math.max(0, now - lane[axis .. '_sent_ms']) * pace)
      change[axis .. '_level'] = math.min(level, sent)
    end
  end
end

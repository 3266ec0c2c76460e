-- The gate of a lane while it grants permits: everything that may hold a job back, and what a permit takes from it.
-- GIVES: gate_of barrier pass

function gate_of(row, limits, room, most, now)
  local day_used, day_until = today(row, now)
  return {
    row = row, limits = limits, now = now, taken = 0, room = room, most = most,
    buckets = buckets_of(row, limits, now), day = allowed(row, limits, 'day') or math.huge, day_used = day_used,
    day_until = day_until, window = places(row, limits), cluster = redis.call('ZCARD', KEY.leases),
    probing = row.circuit == 'open',
  }
end

-- What keeps a job that is charged `reserved` from starting now, and when that may be over (0: when woken). Of several
-- buckets it is the one that takes longest. What is larger than a bucket goes when it is full, and leaves a debt.
function barrier(gate, reserved)
  local row, now, gap = gate.row, gate.now, gate.limits.min_gap_ms or 0
  if gate.probing and gate.taken > 0 then return 'probing', 0 end
  if (row.inflight or 0) >= gate.window then return 'window', 0 end
  if gate.taken >= gate.room or gate.cluster >= gate.most then return 'slots', 0 end
  if gap > 0 and now < (row.started_ms or 0) + gap then return 'gap', row.started_ms + gap end
  if gate.day_used >= gate.day then return 'day', gate.day_until end
  local held_until = holding(row)
  if held_until then return 'refused', held_until end
  local reason, at
  for _, bucket in ipairs(gate.buckets) do
    local wanted = bucket.axis == 'requests' and 1 or amount_on(bucket.axis, reserved)
    local need = math.min(wanted * UNIT, bucket.full)
    local ready = bucket.level < need and math.max(now, bucket.from_ms) + wait_for(bucket.level, need, bucket.pace)
    if ready and ready > (at or 0) then reason, at = bucket.axis, ready end
  end
  return reason, at
end

-- Lets a job through. Returns the numbers of its charges, by token axis.
function pass(gate, reserved)
  local row = gate.row
  gate.taken, gate.cluster, gate.day_used = gate.taken + 1, gate.cluster + 1, gate.day_used + 1
  row.inflight, row.granted, row.started_ms = (row.inflight or 0) + 1, (row.granted or 0) + 1, gate.now
  row.day_used, row.day_until_ms = gate.day_used, gate.day_until
  row.spent_input = (row.spent_input or 0) + reserved.input
  row.spent_output = (row.spent_output or 0) + reserved.output
  if gate.probing then row.circuit = 'half_open' end
  note_grant(row, gate.now)
  return take(row, gate.buckets, reserved)
end

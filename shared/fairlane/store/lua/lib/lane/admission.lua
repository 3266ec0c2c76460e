-- Admission to a lane while it grants permits: what blocks a job, and what a permit costs.
-- GIVES: admission_of blocked_by gathering_ms admit
-- USES: buckets/buckets buckets/token_bucket circuit/doubt circuit/probe circuit/suspect concurrency/widening
--       lane/advance lane/limits rate/constants refusal/reopening tokens/amounts tokens/token_charges
-- NEEDS: KEY.leases

function admission_of(row, limits, room, most, now)
  local day_used, day_until, day_shut = day_use(row, now)
  return with_window({
    row = row, limits = limits, now = now, taken = 0, room = room, most = most,
    buckets = buckets_of(row, limits, now), day = allowed(row, limits, 'day') or math.huge, day_used = day_used,
    day_until = day_until, day_shut = day_shut, cluster = redis.call('ZCARD', KEY.leases),
    probing = row.parked ~= nil or (row.circuit or 'closed') ~= 'closed',
  })
end

-- What blocks a job, as in `blocked_by`. A `trial` ignores what 429s have changed; a probe ignores the window.
local function limit_reached(admission, reserved, margins, trial)
  local row, now, gap = admission.row, admission.now, admission.limits.min_gap_ms or 0
  if admission.shut and not trial then return admission.shut, admission.shut_at end
  if admission.probing and admission.taken > 0 then return 'probing', 0 end
  local full, opens = window_full(admission, trial)
  if full then return 'window', opens end
  if admission.taken >= admission.room or admission.cluster >= admission.most then return 'slots', 0 end
  if gap > 0 and now < (row.started_ms or 0) + gap then return 'gap', row.started_ms + gap end
  local day_ends = admission.day_shut or admission.day_used >= admission.day and admission.day_until
  if day_ends then return 'day', day_ends end
  local doubt_ends = in_doubt(row, admission.limits, admission.team, now)
  if doubt_ends then return 'doubt', doubt_ends end
  local reason, at = provider_shut(row, trial, now)
  if reason then return reason, at end
  for _, bucket in ipairs(admission.buckets) do
    local wanted = bucket.axis == 'requests' and 1 or amount_on(bucket.axis, reserved)
    local need = math.min(wanted * UNIT, bucket.full) + math.ceil(margins[bucket.axis] or 0) * UNIT
    local has = bucket.level + bucket.spilled
    local ready = has < need and math.max(now, bucket.from_ms) + wait_for(has, need, bucket.pace)
    if ready and ready > (at or 0) and (bucket.configured or not trial) then reason, at = bucket.axis, ready end
  end
  return reason, at
end

-- What blocks a job that is charged `reserved` now, and when that may end (0: when woken); nil if nothing does. Of
-- several buckets the slowest counts. `margins`: by axis, what must stay in the bucket. A job larger than a bucket
-- starts when the bucket is full, and leaves a debt. It may be a trial if another team's 429s or a named wait block it.
function blocked_by(admission, reserved, margins)
  local reason, at = limit_reached(admission, reserved, margins, false)
  local tries = admission.tries or reason and may_try(admission.row, admission.team, admission.now)
  if not (reason and tries) or limit_reached(admission, reserved, margins, true) then return reason, at end
  admission.trial = true
end

-- For how many ms a lane that waits for its request rate gathers permits; `queued`: jobs by offer. Without it, the
-- scheduler would ask once for each call. The bucket stays at most half full, so that nothing overflows, and gathers no
-- more permits than there are jobs.
function gathering_ms(admission, queued)
  local jobs = 0
  for _, count in ipairs(queued) do jobs = jobs + count end
  for _, bucket in ipairs(admission.buckets) do
    if bucket.axis == 'requests' then
      local most_ms = bucket.configured and CONFIGURED_GATHER_MS or GATHER_MS
      local calls = math.min(GATHER_CALLS, jobs) * UNIT
      local units = math.min(most_ms * bucket.pace, calls - bucket.level, bucket.full / 2 - bucket.level)
      return math.max(0, math.floor(units / bucket.pace))
    end
  end
  return 0
end

-- Charges the lane for a permit. Returns the numbers of its charges, by token axis.
function admit(admission, reserved)
  local row = admission.row
  row.inflight, row.granted, row.started_ms = (row.inflight or 0) + 1, (row.granted or 0) + 1, admission.now
  row.day_used, row.day_until_ms = admission.day_used + 1, admission.day_until
  admission.taken, admission.cluster, admission.day_used = admission.taken + 1, admission.cluster + 1, row.day_used
  row.spent_input = (row.spent_input or 0) + reserved.input
  row.spent_output = (row.spent_output or 0) + reserved.output
  if admission.probing then begin_probe(row, admission.limits, admission.team, admission.now) end
  local trial, tries = admission.trial, admission.trial and admission.tries
  admission.trial, admission.tries = nil, nil
  if trial and not tries then row.suspect_trial = row.granted end
  admission.doubted = start_doubted(row, admission.team)
  note_grant(row, tries, admission.now)
  return take_tokens(row, admission.buckets, reserved)
end

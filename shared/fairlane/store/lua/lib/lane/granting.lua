-- A lane while it grants permits: read and brought up to now in one step, and written back in one step.
-- GIVES: open_lane turn_of_offers true_up_shares close_lane
-- USES: buckets/arrival_bounds circuit/blame circuit/doubt circuit/suspect lane/admission lane/advance
--       lane/dominant_share lane/limits lane/state team/in_flight team/reserved_shares tokens/token_charges
-- NEEDS: KEY.lane KEY.limits KEY.owed

-- Returns the lane's admission (lib/lane/admission.lua) as of now, with the teams' shares of the lane; what shuts the
-- whole lane, or nil; and when to request permits again (0: when woken). `shares` is a text as in
-- lib/team/reserved_shares.lua; `room`: free slots of the workers; `most`: most calls in flight over all lanes.
function open_lane(shares, room, most, now)
  local lane, limits = read_hash(KEY.lane), read_hash(KEY.limits)
  local row = edited(lane)
  advance_to_now(row, limits, now)
  local admission = admission_of(row, limits, room, most, now)
  admission.lane, admission.shares = lane, shares_of_lane(shares, row, limits, now)
  local reason, at, try_ms = shut_reason(row, now)
  admission.tries = try_ms and now >= try_ms
  return admission, reason, try_ms and now < try_ms and try_ms or at
end

-- Returns order, passing, reason, at. `order`: indices of offers in the order of their permits. If one team's calls
-- alone have failed or met 429s, other teams go first; in a doubt that team goes first once the others have had their
-- calls. `reason` shuts the lane until `at`. If that team's failures are why, only the others are in the order, and
-- `passing` is true: their calls do not wait. `passing` is also true if a call may try a named wait.
function turn_of_offers(offers, admission, reason, at)
  local row = admission.row
  local suspect = clear_suspect_of(row)
  local blamed, order, after = blamed_team(row) or suspect, {}, {}
  for i, offer in ipairs(offers) do
    local list = blamed == team_of(offer.run) and after or order
    list[#list + 1] = i
  end
  if suspect and suspect == blamed and reason == 'blocked' and #order > 0 then
    admission.shut, admission.shut_at = reason, at
    return order, true
  end
  if blamed and reason and #order > 0 then
    local passing, other, until_ms = open_to_guests(row, reason, admission.now)
    if passing then
      admission.probing = reason ~= 'blocked'
      return order, true, other, until_ms
    end
  end
  if no_more_guests(row, admission.limits) then order, after = after, order end
  for _, i in ipairs(after) do order[#order + 1] = i end
  if not admission.tries then return order, false, reason, at end
  admission.shut, admission.shut_at = reason, at
  return order, true
end

-- Corrects the teams' shares by what each was charged too little, and saves them. Returns the corrections by team, in
-- billionths of lane minutes. If only the window limited jobs, shares of the rate stay as they are.
function true_up_shares(admission)
  local owed = take_owed(KEY.owed)
  save_shares(admission.shares, admission.row.stop ~= 'window' and owed or {})
  return owed
end

-- Writes the lane. `reason` blocks its further jobs until `until_ms` (nil: nothing does; 0: until woken). Returns
-- whether one team's 429s may be why.
function close_lane(admission, reason, until_ms)
  local lane, row = admission.lane, admission.row
  row.stop, row.stop_until_ms = reason or '', until_ms or 0
  save_buckets(lane, admission.buckets, row, admission.now)
  note_arrival_bounds(lane, admission.limits, admission.buckets, row)
  write_hash(KEY.lane, row)
  return is_suspected(row, reason)
end

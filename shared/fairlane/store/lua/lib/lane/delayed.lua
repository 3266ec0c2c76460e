-- Runs that a bound of theirs, a budget or a share delays on a lane while it grants permits.
-- GIVES: note_delay
-- USES: run/bounds
-- NEEDS: KEY.starved

-- Notes why an offer gets no further permit, and arranges that the lane is woken when that ends. `delays` is {runs,
-- reserved_until}: what is reserved for others may be free with every call, so a run that waits for it is not listed.
function note_delay(delays, offer, bound, until_ms, row)
  if bound == 'reserved' then
    local ends = until_ms > 0 and until_ms or math.huge
    delays.reserved_until = math.min(delays.reserved_until or math.huge, ends)
    return
  end
  local in_flight = offer.bounds.in_flight or 0
  table.insert(delays.runs, { offer = offer.index - 1, bound = bound, until_ms = until_ms, in_flight = in_flight })
  if bound == 'cap' then
    redis.call('SADD', KEY.starved, offer.lane)
  elseif bound == 'team_share' then
    row.teams_wait = until_ms == 0 and 1 or row.teams_wait
  elseif until_ms == 0 then
    wake_when_released(offer.bounds)
  end
end

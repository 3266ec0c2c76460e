-- Turns of conversations that go side by side: a run feeds their items in any order, each once, after the previous item
-- of its conversation has ended.
-- GIVES: take_turns
-- USES: core/tries
-- NEEDS: KEY.active KEY.dirty KEY.done KEY.fed KEY.finished KEY.jobs KEY.memory KEY.queues KEY.results KEY.run_lanes
--        KEY.sessions

local function has_ended(item, steps)
  for job = item * steps, (item + 1) * steps - 1 do
    if redis.call('GETBIT', KEY.done, job) == 0 then return false end
  end
  return true
end

-- Tries the keys that feeding writes, and marks items as fed. `turns` is [[item, previous item of its conversation (-1:
-- ended long ago)], …]. Returns false, and changes nothing, if the turn of one of them has not come.
function take_turns(turns, steps)
  try_keys({
    hash = { KEY.jobs, KEY.memory, KEY.results, KEY.sessions }, list = { KEY.finished, unpack(KEY.queues) },
    set = { KEY.active, KEY.dirty, KEY.run_lanes }, string = { KEY.done, KEY.fed },
  })
  for _, turn in ipairs(turns) do
    local item, before = unpack(turn)
    if redis.call('GETBIT', KEY.fed, item) == 1 then return false end
    if before >= 0 and not has_ended(before, steps) then return false end
  end
  for _, turn in ipairs(turns) do redis.call('SETBIT', KEY.fed, turn[1], 1) end
  return true
end

-- Turns of conversations that go side by side: a run feeds their items in any order, each once, after the previous item
-- of its conversation has ended.
-- GIVES: take_turns
-- NEEDS: KEY.done KEY.fed

local function has_ended(item, steps)
  for job = item * steps, (item + 1) * steps - 1 do
    if redis.call('GETBIT', KEY.done, job) == 0 then return false end
  end
  return true
end

-- Marks items as fed. `turns` is [[item, previous item of its conversation (-1: ended long ago)], …]. Returns false,
-- and changes nothing, if the turn of one of them has not come.
function take_turns(turns, steps)
  for _, turn in ipairs(turns) do
    local item, before = unpack(turn)
    if redis.call('GETBIT', KEY.fed, item) == 1 then return false end
    if before >= 0 and not has_ended(before, steps) then return false end
  end
  for _, turn in ipairs(turns) do redis.call('SETBIT', KEY.fed, turn[1], 1) end
  return true
end

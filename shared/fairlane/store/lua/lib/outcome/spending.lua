-- Corrects a lane's spending once a call's actual usage is known; until then its expected usage counts. The correction
-- applies to every count from that call on, and to no other. Otherwise the count between two moments, which measures a
-- limit, has the errors of earlier calls (lib/estimate/limit_estimator.lua).
--   corrected_input, corrected_output   the sum of all corrections
-- GIVES: correct_spending
-- USES: lane/dominant_share lane/state tokens/amounts tokens/charges
-- NEEDS: KEY.state

local COUNTS = { '_open', '_edge', '_minute', '_earlier' } -- of an axis; `<axis>_open_n` and so on are their last calls

-- Adds to those counts of an axis that include the n-th call.
local function recount(row, axis, n, amount)
  for _, count in ipairs(COUNTS) do
    if n <= (row[axis .. count .. '_n'] or 0) then row[axis .. count] = (row[axis .. count] or 0) + amount end
  end
  if row.shut ~= axis then return end
  if n < (row.first_refused_n or 0) then row.first = row.first + amount end
  if n < row.refused_n then row.last = row.last + amount end
end

-- Replaces a call's expected usage by what the provider charged, and trues up its team's share. Notes the difference in
-- the lease: `off`, {input, output}.
function correct_spending(row, limits, lease, signal, used, now)
  local final = final_charge(limits, lease, signal, used)
  lease.off = { input = final.input - lease.charged.input, output = final.output - lease.charged.output }
  for kind, off in pairs(lease.off) do
    if off ~= 0 then
      row['spent_' .. kind] = (row['spent_' .. kind] or 0) + off
      row['corrected_' .. kind] = (row['corrected_' .. kind] or 0) + off
    end
  end
  for _, axis in ipairs(AXES) do
    local measured = axis ~= 'requests' and known(row[axis .. '_est'])
    if measured then recount(row, axis, lease.n, amount_on(axis, lease.off)) end
  end
  true_up_share(row, limits, lease, final, KEY.state, now)
end

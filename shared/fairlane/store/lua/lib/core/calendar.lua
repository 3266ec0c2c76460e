-- Days and months of the calendar, in UTC.
-- GIVES: period_of

-- Year, month and day of a day since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms",
-- civil_from_days).
local function civil_date(days)
  local era = math.floor((days + 719468) / 146097)
  local of_era = days + 719468 - era * 146097
  local leaps = math.floor(of_era / 1460) - math.floor(of_era / 36524) + math.floor(of_era / 146096)
  local year = math.floor((of_era - leaps) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local march = math.floor((5 * of_year + 2) / 153)
  local month = march < 10 and march + 3 or march - 9
  return year + era * 400 + (month <= 2 and 1 or 0), month, of_year - math.floor((153 * march + 2) / 5) + 1
end

-- The period of a day: its name, its first day, and the first day of the next period.
function period_of(per, days)
  local year, month, day = civil_date(days)
  if per == 'day' then return string.format('%04d-%02d-%02d', year, month, day), days, days + 1 end
  local first = days - day + 1
  local _, _, beyond = civil_date(first + 31)
  return string.format('%04d-%02d', year, month), first, first + 32 - beyond
end

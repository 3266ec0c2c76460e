-- Constants of the circuit breaker and of overloads. Each line has its unit, then its source or the reason for its
-- value.
-- GIVES: OUTAGE_FAILURES CIRCUIT_APART_MS OUTAGE_DELAY_S OUTAGE_GROWTH OUTAGE_LONGEST_S PATIENCE PATIENCE_MS BUSY_MS
--       BUSY_MOST_MS CALMED REFUSED_LEAST REFUSED_FIRST_MS REFUSED_LONGEST_MS OUTLIVED SILENT SILENT_LEAST_MS
--       SILENT_GROWTH SLOWEST_CALLS LONGEST_WAIT_S HELD_DAY_MS DAY_FIRST_MS LATEST_MS ENOUGH_ENDED MOST_REFUSED
--       MOST_SHUT

-- circuit/circuit, circuit/doubt and outcome/rejected
OUTAGE_FAILURES = 5 -- failures, started apart in time, that open the circuit where a lane configures no number
CIRCUIT_APART_MS = 50 -- ms between the starts of failed attempts that count: one lost link breaks many at once
OUTAGE_DELAY_S = 1 -- s until the first probe: most failures are over by then, and each further probe waits longer
OUTAGE_GROWTH = 1.25 -- factor on that for each failed probe: a lane waits a quarter of its outage's length at most
OUTAGE_LONGEST_S = 60 -- s: the longest wait until a probe notices the end of an outage of hours
PATIENCE = 4 -- factor on the usual time of a call: a call that a shorter deadline ended is no sign of an outage
PATIENCE_MS = 30000 -- ms: the same deadline on a lane that has not answered yet
BUSY_MS = 100 -- ms for which an overload blocks the lane, doubled with each further one
BUSY_MOST_MS = 5000 -- ms: the longest such block, so that a recovery is noticed in seconds
REFUSED_LEAST = 2 -- 429s of one team before they may be its own fault: one may be by chance at the lane's limit
REFUSED_FIRST_MS = 1000 -- ms until the next call of a team that 429s shut out, doubled with each that meets one
REFUSED_LONGEST_MS = 60000 -- ms: the longest such wait, also for such a call's end; a quota may be granted any time
CALMED = 0.25 -- overloads that an answer outweighs: if more than a fifth of the calls meet one, the block grows

-- circuit/probe
OUTLIVED = 4 -- factor on the time that the outage's calls took to fail: a probe that takes longer may succeed

-- circuit/unanswered
SILENT = 2 -- factor on the time of slow calls: a lane that answers no call for longer is silent
SILENT_LEAST_MS = 1000 -- ms: the shortest such time, since networks and garbage collectors pause for some tenths
SILENT_GROWTH = 0.25 -- share of the silence so far until the next call: the lane waits only so much too long
SLOWEST_CALLS = 1000 -- calls in which the memory of a slow one fades to a third: one in a thousand may take as long

-- circuit/hold
LONGEST_WAIT_S = 3600 -- s: providers mostly ask for minutes; longer waits are not believed, but probed
HELD_DAY_MS = 86400000 -- ms: by then a day's limit has been renewed, in whatever time zone
DAY_FIRST_MS = 60000 -- ms until the first probe: a limit that seems to be a day's may be a minute's
LATEST_MS = 253402214400000 -- ms: the last day of the year 9999, the last that Python's dates have

-- circuit/own_limits
ENOUGH_ENDED = 6 -- 429s of the team, and answers to others, together: at a lane's limit both would be mixed

-- circuit/refused_teams
MOST_REFUSED = 8 -- teams that a lane notes; further 429s detect a dropped one again

-- circuit/shut_out
MOST_SHUT = 8 -- teams that a lane notes; further failures shut a dropped one out again

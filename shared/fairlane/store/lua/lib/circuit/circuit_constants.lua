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
OUTAGE_GROWTH = 1.25 -- factor on that for each in vain: so a lane waits for a quarter of its outage's length at most
OUTAGE_LONGEST_S = 60 -- s: so much may be lost until a probe notices the end of an outage of hours
PATIENCE = 4 -- factor on the usual time of a call: a call that a shorter deadline ends is no sign of an outage
PATIENCE_MS = 30000 -- ms: the shortest such deadline on a lane that has not answered yet
BUSY_MS = 100 -- ms for which the lane of an overloaded provider is blocked, doubled with each sign
BUSY_MOST_MS = 5000 -- ms: the longest such block, so that a recovery is noticed in seconds
REFUSED_LEAST = 2 -- 429s of one team before they may be its own: one meets a lane at its limit by chance
REFUSED_FIRST_MS = 1000 -- ms until the next call of a team that 429s shut out, doubled with each that meets one
REFUSED_LONGEST_MS = 60000 -- ms: the longest such wait, and how long such a call is awaited; a quota may come any time
CALMED = 0.25 -- signs that an answer outweighs: where more than a fifth of the calls meet one, the block grows

-- circuit/probe
OUTLIVED = 4 -- factor on how long the outage's calls took to fail: a probe that takes longer may have been admitted

-- circuit/unanswered
SILENT = 2 -- factor on how long slow calls take: so long is none awaited while others are answered
SILENT_LEAST_MS = 1000 -- ms: the shortest such time, since networks and garbage collectors pause for some tenths
SILENT_GROWTH = 0.25 -- of a silence, until the next call: so much longer than the hang does the lane wait at most
SLOWEST_CALLS = 1000 -- calls in which the memory of a slow one fades to a third: one in a thousand may take as long

-- circuit/hold
LONGEST_WAIT_S = 3600 -- s: an hour; what providers ask for is mostly minutes, and the end of a day is no wait
HELD_DAY_MS = 86400000 -- ms: by then a day's limit is renewed, wherever that day ends
DAY_FIRST_MS = 60000 -- ms until the first probe: what was read or named as a day's limit may be a minute's
LATEST_MS = 253402214400000 -- ms: the last day of the year 9999, beyond which there are no dates

-- circuit/own_limits
ENOUGH_ENDED = 6 -- such 429s, and answers to others: were it the lane's limit, both would be mixed

-- circuit/refused_teams
MOST_REFUSED = 8 -- teams: one that is dropped has to be found out again

-- circuit/shut_out
MOST_SHUT = 8 -- teams: one that is dropped has to fail as often as any other before it is shut out again

-- Constants that separate rows which a provider never serves from an outage and from a limit. Each line has its unit,
-- then its source or the reason for its value.
-- GIVES: FLAWED_OF FAILED_AGAIN OUTAGE_BY_CHANCE OUTAGE_LEAST QUIET_MS OFTEN_FLAWED FEW_FLAWED RETRY_DRAWN
--       OFTEN_REJECTED RETRY_TURN FRESH_RECENT FRESH_LEAST FRESH_MOST LIMIT_BY_CHANCE LIMIT_LEAST RETRY_ANSWERED
--       SPARED SPARED_BEYOND ALONE_BY_CHANCE LAST_BY_CHANCE LAST_LEAST OWN_TIMES CONTROL_DOUBLINGS

-- circuit/own_failures
FLAWED_OF = 100 -- answers after which a flawed job counts for a third (1/e): a provider may begin to fail some calls
FAILED_AGAIN = 0.9 -- share of jobs that have failed before, if only flawed rows are left: some are new
OUTAGE_BY_CHANCE = 0.1 -- odds of an outage to such rows, at or below which failures are their jobs' own
OUTAGE_LEAST = 0.01 -- the lowest odds, so that a few new jobs that fail show an outage which begins later
QUIET_MS = 60000 -- ms without an answer before that is believed: a short outage may begin with the last row
OFTEN_FLAWED = 0.1 -- share of jobs that fail while others are answered: above it, most retries are in vain
FEW_FLAWED = 10 -- answers that are added to the count, so that the share is small at first

-- circuit/own_rejections
FRESH_RECENT = 20 -- first calls after which one counts for a third (1/e): a limit may sink at any time
FRESH_LEAST = 0.1 -- the least share of rejected first calls that is assumed: it is estimated from few calls
FRESH_MOST = 0.9 -- the same: the most
LIMIT_BY_CHANCE = 0.03 -- odds of a limit to such rows, at or below which the lane rejects rows
LIMIT_LEAST = 0.001 -- the lowest odds, so that one or two answered retries show a limit again
RETRY_ANSWERED = 0.02 -- share of retries that are answered where rows are rejected: some met a limit as well
SPARED = 5 -- rejections of first calls in a row that such rows may explain
SPARED_BEYOND = 1.5 -- factor on the share of rejected first calls that chance may explain

-- lane/new_lease and lane/retries
ALONE_BY_CHANCE = 0.1 -- probability of so many rejections alone, if all jobs are equal, below which a job is at fault
LAST_BY_CHANCE = 0.00000001 -- the same, below which its next rejection fails it: by chance one job of a hundred million
LAST_LEAST = 10 -- least rejections that it has met alone by then: the share of rejected calls is an estimate
RETRY_DRAWN = 0.34 -- share of retries of rejected jobs in a random draw: few, but enough for a test
OFTEN_REJECTED = 0.15 -- share of repeatedly rejected jobs: below it, each job is judged by itself
RETRY_TURN = 16 -- calls of which one is a retry, if most retries are in vain: so none waits for all first calls

-- circuit/alike and circuit/control
OWN_TIMES = 3 -- times until words count as their rows' fault: such rows then get no second call
CONTROL_DOUBLINGS = 6 -- most doublings of the rows until words are doubted again: a lane that then rejects all calls in
-- these words fails about as many rows as were proved to be bad before

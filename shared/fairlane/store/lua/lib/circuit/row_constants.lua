-- Constants by which a lane tells rows that its provider never serves from an outage and from a limit. Each line has
-- its unit, then its source or the reason for its value.
-- GIVES: FLAWED_OF FAILED_AGAIN OUTAGE_BY_CHANCE OUTAGE_LEAST QUIET_MS OFTEN_FLAWED FEW_FLAWED RETRY_DRAWN
--       OFTEN_REJECTED RETRY_TURN FRESH_RECENT FRESH_LEAST FRESH_MOST LIMIT_BY_CHANCE LIMIT_LEAST RETRY_ANSWERED
--       SPARED SPARED_BEYOND ALONE_BY_CHANCE LAST_BY_CHANCE LAST_LEAST OWN_TIMES CONTROL_DOUBLINGS

-- circuit/own_failures
FLAWED_OF = 100 -- answers after which a flawed job counts a third: a provider may begin to fail some calls
FAILED_AGAIN = 0.9 -- share of jobs that have failed before, where only rows of this kind are left: some are new
OUTAGE_BY_CHANCE = 0.1 -- the most that an outage may be as probable as such rows for their failures to be their own
OUTAGE_LEAST = 0.01 -- the odds sink no lower, so that a few new jobs that fail show an outage that begins later
QUIET_MS = 60000 -- ms for which nobody was answered then: a short outage may begin with the last row
OFTEN_FLAWED = 0.1 -- share of jobs that have failed while others were answered: with more, most retries are in vain
FEW_FLAWED = 10 -- answers by which the share is taken to be small at first

-- circuit/own_rejections
FRESH_RECENT = 20 -- first calls after which one counts a third: a limit may sink at any time
FRESH_LEAST = 0.1 -- the least share of first calls that a limit is taken to reject: it is an estimate of few calls
FRESH_MOST = 0.9 -- and the most
LIMIT_BY_CHANCE = 0.03 -- the most that a limit may be as probable as such rows for a lane to reject rows
LIMIT_LEAST = 0.001 -- the odds sink no lower, so that a retry or two that are answered show a limit again
RETRY_ANSWERED = 0.02 -- share of retries that are answered where rows are rejected: a limit may be met as well
SPARED = 5 -- first calls, rejected one after the other, that such rows may explain
SPARED_BEYOND = 1.5 -- factor on the share of first calls that are rejected: so many more may be by chance

-- lane/new_lease and lane/retries
ALONE_BY_CHANCE = 0.1 -- the most chance that a job meets as many rejections alone where all jobs are rejected alike
LAST_BY_CHANCE = 0.00000001 -- and where one more ends it: one job of a hundred million ends so by chance
LAST_LEAST = 10 -- rejections that it met alone by then, at least: the share of rejected calls is an estimate
RETRY_DRAWN = 0.34 -- share of calls that are retries of rejected jobs where that is drawn: few, but a test
OFTEN_REJECTED = 0.15 -- share of jobs that are rejected so often: below it, each is judged by itself
RETRY_TURN = 16 -- calls of which one is a retry although most retries are in vain, so that none waits for all others

-- circuit/alike and circuit/control
OWN_TIMES = 3 -- times until words count as their rows' own: their rows need no second call
CONTROL_DOUBLINGS = 6 -- of the rows until words are doubted again: a lane that then rejects all calls in these very
-- words ends about as many rows as were proved to be bad before

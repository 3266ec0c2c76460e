-- Constants of the detectors beside the rate: concurrency, latency, overload. Each line has its unit, then its source
-- or the reason for its value. A value marked (control) has no other source than the simulated lanes of docs/control:
-- whoever changes it judges the change by `make simulate`.
-- GIVES: STEADY_FLOORS FLOORS UNPROVOKED BEYOND STRAGGLERS WORTH UNDER MANY_UNDER LATENCIES LEAST_FIRST FEW_TRIES
--       MANY_TRIES FEW_AT_ONCE FEW_OVER NEAR OVER RARE WIDEN_MS WIDEN_NAMED_MS WIDEN_LATE_MS WIDEN_SOON_MS SERVES
--       OVERLOADED CERTAIN LEAST_RANDOM MOST_RANDOM RANDOM_CALLS RANDOM_BELOW MET LEAST_STEP FIRST_TOKEN SAMPLES
--       MANY_SAMPLES NEARLY_ALL KNEE SHARP_KNEE ROOM GROWN CAUSED QUICK LEAST_QUEUE BASE_FALLS BASE_RISES PACE_CALLS
--       REFUSED_LATELY_MS LATE_USUAL LATE_MORE LATE_OFF_MS LATE_CLIMB LATE_WIDEN SEARCH_ANSWERS SEARCH_GAIN
--       SEARCH_REST SEARCH_RESTS MOVED CAREFUL UNSURE

-- concurrency/concurrency_floor, _detector and _trial: 429s that begin at about the same number of calls in flight.
STEADY_FLOORS = 3 -- factor on FLOORS once a steady rate was measured: it is probed three times as often as before
FLOORS = 4 -- epochs in a row that agree: three agree by chance where the number in flight hardly varies (control)
UNPROVOKED = 2 -- 429s at a window that was not widened, beside those of calls on their way, that measure the limit
BEYOND = 10 -- calls that went through beyond a window, with which a 429 at it is none of a limit of so many calls: of
--           one, a few go through while answers are on their way
STRAGGLERS = 2 -- such calls each time that a window is widened, as many as a limit of calls at once may let through
WORTH = 0.95 -- share of the rate before a trial: with fewer answers at the same latency, its window is not the limit
UNDER = 20 -- calls that went through at clearly fewer in flight, without which nothing is compared
MANY_UNDER = 50 -- the same for a trial that begins before another 429: RARE of them, and none over
LATENCIES = 4 -- and so many times the floor: numbers in flight within one latency say the same
LEAST_FIRST = 8 -- calls in flight at a first 429 from which it is tried as the limit: one call more or less is little
FEW_TRIES = 2 -- 429s in a row, the waits that the provider asked for between them, after which waiting is in vain
MANY_TRIES = 4 -- the same for waits that the lane chose: a bucket may just not have earned a call
FEW_AT_ONCE = 4 -- calls in flight at a 429: no number is both well below fewer ones, and near them
FEW_OVER = 4 -- 429s at such a number for each call that goes through at it: a limit of rate lets most through
NEAR = 0.4 -- share of the floor: calls at fewer in flight say nothing about it
OVER = 3 -- calls that went through at more in flight, with which a floor is refuted
RARE = 50 -- calls: one over for so many under is a miscount

-- concurrency/concurrency_limit and overload
WIDEN_MS = 30000 -- ms of saturation after which the window is widened: by one, two, four … until a 429
WIDEN_NAMED_MS = 300000 -- ms: the same where a 429 named the limit, doubled with each that names it again
WIDEN_LATE_MS = 3600000 -- ms: the longest such time: a limit that was named rises with a customer's tier, if ever
WIDEN_SOON_MS = 1000 -- ms: the same after an overload, doubled with each overload that a wider window meets
MET = 0.3 -- share of answered calls that met as many in flight: too many to be stragglers of a limit (control)
LEAST_STEP = 0.5 -- calls in flight by which that number moves at least, so that it also follows a small one (control)
OVERLOADED = 0.5 -- share of calls that meet an overload where they are too many: most of those above a limit
CERTAIN = 5 -- logarithm of the odds from which that is believed: 150 to 1
LEAST_RANDOM = 0.002 -- share of calls that meet one at random before any is measured: two of eight are many (control)
MOST_RANDOM = 0.1 -- the highest share that is taken for chance: a provider with more of them has an outage
RANDOM_CALLS = 256 -- calls over which that share is averaged: some ten overloads at 5 %
RANDOM_BELOW = 4 -- overloads that say nothing of a limit, so many more than others, that show chance (control)
SERVES = 2 -- factor on the usual time of a call: a lane that has answered nobody for longer serves nobody

-- concurrency/slowness and latency: a provider that queues calls where others reject them.
FIRST_TOKEN = 20 -- tokens of output that take about as long as the wait for the first one (control)
SAMPLES = 16 -- calls of which a mean is taken
MANY_SAMPLES = 64 -- calls after which a doubled latency is no chance
NEARLY_ALL = 0.9 -- share of such calls that are to end: a few may hang
KNEE = 2 -- factor on the usual latency over MANY_SAMPLES calls: Little's law, half of the calls queue
SHARP_KNEE = 4 -- the same over fewer calls, and where a steady rate limits the lane
ROOM = 1.25 -- factor on the window that keeps the provider busy, since it is measured with noise
GROWN = 1.1 -- factor on the calls in flight when slow ones started: with more now, the provider does not keep up
CAUSED = 0.7 -- share of the slowdown by which the calls in flight have grown at least where they are its cause
QUICK = 1.1 -- factor on the usual latency below which nothing queues, and a wider window is tried at once
LEAST_QUEUE = 4 -- calls in flight: fewer do not queue
BASE_FALLS = 0.5 -- share of the difference by which the usual latency follows a lower mean (control)
BASE_RISES = 0.02 -- the same for a higher mean: a queue must not become usual (control)
PACE_CALLS = 8192 -- calls over which a call kind's pace drifts: far longer than a queue takes to show
REFUSED_LATELY_MS = 600000 -- ms: a lane that was rejected so lately is judged by its 429s alone

-- concurrency/late: deadlines that calls miss in a provider's queue.
LATE_USUAL = 2 -- factor on a deadline: where calls usually take longer, the deadline is too short, whoever waits
LATE_MORE = 3 -- calls that may be late alone, beyond those for which the server still works on calls that have ended
LATE_OFF_MS = 600000 -- ms until deadlines narrow the window again where that was in vain
LATE_CLIMB = 0.25 -- share of the deadline in which a call is answered that widens the window by one
LATE_WIDEN = 0.5 -- share of the deadline in which calls usually are answered where the window is widened in time

-- concurrency/search_window: how many calls at once an endpoint serves of which nobody has said so.
SEARCH_ANSWERS = 2 -- answers for each call of a full window, after which its answers a second are known
SEARCH_GAIN = 0.4 -- share of the calls that are added by which the answers a second must grow at least
SEARCH_REST = 8 -- the same answers after a try in vain, until the next one: doubled with each
SEARCH_RESTS = 64 -- and the most of them

-- reported/hints: what headers say
MOVED = 0.01 -- share by which a reported limit differs from the last to be another limit, not its rounding

-- lane_restore: what was remembered of a lane that Redis has lost.
CAREFUL = 0.9 -- share of the estimate
UNSURE = 0.1 -- its relative standard deviation

-- Constants of the detectors of concurrency, latency and overload. Each line has its unit, then its source or the
-- reason for its value. The simulated lanes of docs/control are the only source of a value marked (control): judge a
-- change of it by `make simulate`.
-- GIVES: STEADY_FLOORS FLOORS UNPROVOKED BEYOND STRAGGLERS WORTH UNDER MANY_UNDER LATENCIES LEAST_FIRST FEW_TRIES
--       MANY_TRIES FEW_AT_ONCE FEW_OVER NEAR OVER RARE WIDEN_MS WIDEN_NAMED_MS WIDEN_LATE_MS WIDEN_SOON_MS SERVES
--       OVERLOADED CERTAIN LEAST_RANDOM MOST_RANDOM RANDOM_CALLS RANDOM_BELOW MET LEAST_STEP FIRST_TOKEN SAMPLES
--       MANY_SAMPLES NEARLY_ALL KNEE SHARP_KNEE ROOM GROWN CAUSED QUICK LEAST_QUEUE BASE_FALLS BASE_RISES PACE_CALLS
--       LEAST_HUNG REFUSED_LATELY_MS LATE_USUAL LATE_MORE LATE_OFF_MS LATE_CLIMB LATE_WIDEN SEARCH_ANSWERS SEARCH_GAIN
--       SEARCH_REST SEARCH_RESTS MOVED CAREFUL UNSURE

-- concurrency/concurrency_floor, _detector and _trial: 429s that begin at about the same number of calls in flight.
STEADY_FLOORS = 3 -- factor on FLOORS once a steady rate was measured: it is probed three times as often
FLOORS = 4 -- epochs in a row that agree: three agree by chance where the number in flight hardly varies (control)
UNPROVOKED = 2 -- 429s at a window that was not widened, besides those of calls in flight, that measure the limit
BEYOND = 10 -- calls that went through beyond a window, which refute it as a concurrency limit: a few also go through at
--           such a limit, while answers are on their way
STRAGGLERS = 2 -- such calls at each widening that a concurrency limit may let through
WORTH = 0.95 -- share of the rate before a trial: with fewer answers at the same latency, its window is not the limit
UNDER = 20 -- calls that must have gone through at clearly fewer in flight: with less, a comparison shows nothing
MANY_UNDER = 50 -- the same for a trial that begins before another 429: as many as RARE, and none over
LATENCIES = 4 -- factor on the floor for the same: calls within one latency meet the same number in flight
LEAST_FIRST = 8 -- calls in flight at a first 429 from which a trial begins at once: one call off matters little
FEW_TRIES = 2 -- 429s in a row after waits that the provider named, from which on waiting does not help
MANY_TRIES = 4 -- the same for waits that the lane chose: the provider's bucket may not have earned a call yet
FEW_AT_ONCE = 4 -- calls in flight at a 429: with fewer, no number is both near the floor and clearly below it
FEW_OVER = 4 -- 429s at such a number for each call that goes through at it: a rate limit lets most through
NEAR = 0.4 -- share of the floor: calls at fewer in flight show nothing about it
OVER = 3 -- least calls that went through at more in flight to refute a floor
RARE = 50 -- calls at fewer in flight for which one at more is taken for a miscount

-- concurrency/concurrency_limit and overload
WIDEN_MS = 30000 -- ms of saturation after which the window is widened: by one, two, four … until a 429
WIDEN_NAMED_MS = 300000 -- ms: the same where a 429 named the limit, doubled with each that names it again
WIDEN_LATE_MS = 3600000 -- ms: the longest such time; a named limit rises only with a customer's tier
WIDEN_SOON_MS = 1000 -- ms: the same after an overload, doubled with each overload of a widened window
MET = 0.3 -- share of answered calls that met as many in flight: too many to be stragglers of a limit (control)
LEAST_STEP = 0.5 -- calls by which that number moves at least, so that it also follows a small one (control)
OVERLOADED = 0.5 -- share of overloads that is assumed above a limit: most calls there meet one
CERTAIN = 5 -- log of the odds from which an overload is no chance: 150 to 1
LEAST_RANDOM = 0.002 -- least share of random overloads that is assumed: two of eight calls are many (control)
MOST_RANDOM = 0.1 -- the highest share that is taken for chance: a provider with more of them has an outage
RANDOM_CALLS = 256 -- calls over which that share is averaged: about ten overloads at 5 %
RANDOM_BELOW = 4 -- by how many overloads at few calls must outnumber those at many to show chance (control)
SERVES = 2 -- factor on the usual time of a call: a lane that has answered no call for longer serves none

-- concurrency/slowness and latency: a provider that queues calls where others reject them.
FIRST_TOKEN = 20 -- output tokens that take about as long as the wait for the first one (control)
SAMPLES = 16 -- calls of which a mean is taken
MANY_SAMPLES = 64 -- calls after which a doubled latency is no chance
NEARLY_ALL = 0.9 -- share of such calls that must have ended: a few may hang
KNEE = 2 -- factor on the usual latency over MANY_SAMPLES calls: Little's law, half of the calls queue
SHARP_KNEE = 4 -- the same over fewer calls, and where a steady rate limits the lane
ROOM = 1.25 -- factor on the window that keeps the provider busy, since that is measured with noise
GROWN = 1.1 -- factor on the calls in flight when slow ones started: if more are now, the provider cannot keep up
CAUSED = 0.7 -- share of the slowdown by which calls in flight must have grown to be its cause
QUICK = 1.1 -- factor on the usual latency below which nothing queues, and a wider window is tried at once
LEAST_QUEUE = 4 -- calls in flight: fewer do not queue
BASE_FALLS = 0.5 -- share of the difference by which the usual latency follows a lower mean (control)
BASE_RISES = 0.02 -- the same for a higher mean: a queue must not become usual (control)
PACE_CALLS = 8192 -- calls over which a call kind's pace is averaged: far more than it takes to notice a queue
REFUSED_LATELY_MS = 600000 -- ms: a lane that was rejected so lately is judged by its 429s alone

-- concurrency/widening
LEAST_HUNG = 4 -- calls of a full window that may hang: fewer may all be slow where latency has two modes

-- concurrency/late: deadlines that calls miss in a provider's queue.
LATE_USUAL = 2 -- factor on a deadline: if calls usually take longer, the deadline is too short, queue or not
LATE_MORE = 3 -- calls that may be late alone, besides those that wait for the server's abandoned calls
LATE_OFF_MS = 600000 -- ms until deadlines narrow the window again, if that did not help
LATE_CLIMB = 0.25 -- share of the deadline in which a call is answered that widens the window by one
LATE_WIDEN = 0.5 -- share of the deadline: if calls usually take less, the window is also widened by time

-- concurrency/search_window: how many concurrent calls an endpoint of unknown limits serves.
SEARCH_ANSWERS = 2 -- answers for each call of a full window, after which its answers a second are known
SEARCH_GAIN = 0.4 -- share of a widening by which the answers a second must grow for it to stay
SEARCH_REST = 8 -- answers for each call of a full window until the next try, doubled with each that fails
SEARCH_RESTS = 64 -- the most of these answers

-- reported/hints: what headers say
MOVED = 0.01 -- share by which a reported limit must differ from the last to be new, and not rounded otherwise

-- lane_restore: what the scheduler remembers of a lane that Redis has lost.
CAREFUL = 0.9 -- share of the estimate from which a restored lane begins: the limit may have sunk
UNSURE = 0.1 -- its relative standard deviation

-- Constants of the rate controller: how fast a lane starts calls, and how it learns its limit from 429s. Each line has
-- its unit, then its source or the reason for its value. The simulated lanes of docs/control are the only source of a
-- value marked (control): judge a change of it by `make simulate`.
-- GIVES: FAR_HIGHER NOT_REPORTED LIFT_MS LIFT_SHOWN REFUSAL_BUDGET COST_WEIGHT PUT_OFF PUT_OFF_MOST PROBE_TAKES_MS
--       WAITED UNRENEWED_MS UNRENEWED_CALLS LEAST_CUT CLIMB_CALLS LEAST_PER_MINUTE MOST_PER_MINUTE START_PER_MINUTE
--       CUT BACK_MS BACK_CALLS BACK_MOST_MS SURE SOONEST UNDER_REPORTED LEAST_OF_REPORTED LEAST_OF_CONFIGURED PROBE
--       PROBE_MS CLIMB_MS UNSURE_CLIMB_MS SAVED_OF_WAIT ENOUGH_CALLS BOUNDED RAMP_MS RAMP_OF_OUTAGE RAMP_FROM
--       GATHER_MS GATHER_CALLS CONFIGURED_GATHER_MS SPREAD_MS LEARNED_BURST_MS WANDER BELOW_REFUSED PROVED STRAYS
--       MOST_STRAYS FALLEN STRAY_DOUBT SURPRISE KEPT_OF_NEW KEPT_OF_PROBE NEW_GROUND STARTED_WITH SAVED_MS
--       LONG_REFUSAL_MS FAIR STEEPER GENTLER KNOWN_WITHIN CLEAR CLEAR_MS CLEAR_MOST_MS WINDOW_MS AGREE_MS MISSED_MS
--       LONG_AGO_MS EDGES_ENOUGH LEAST_FULL SLACK_MS BACK_OFF_MS BACK_OFF_MOST_MS RARELY_MS EDGE_MARGIN_MS PROBES
--       PROBES_OF_CALLS SHUT_PART SHUT_MOST_MS SHUT_STILL_MS OVERTAKEN CUT_CALLS CUT_LEAST CUT_MOST

-- rate/rate: bounds of every rate, in requests or tokens a minute.
LEAST_PER_MINUTE = 0.1 -- a call every ten minutes: a lower rate cannot be distinguished from a parked lane
MOST_PER_MINUTE = 6e9 -- tokens: the greatest limits that are sold are some 10^8
START_PER_MINUTE = 600 -- requests: ten a second, where slow start begins without any knowledge
-- rate/curve: the curve after a 429 (CUBIC, RFC 9438).
CUT = 0.03 -- the most of the estimate by which a lane that knows it starts below it (control)
LEAST_CUT = 0.01 -- the least: what the provider's bucket needs to earn while calls are on their way
BACK_MS = 20000 -- ms until the curve is back at an estimate for which no probe is planned, or at that of a window
BACK_CALLS = 30 -- calls: slow lanes take at least so many until they are back; else most of their calls would be probes
BACK_MOST_MS = 360000 -- ms: the longest such way back, six minutes
SURE = 0.03 -- relative standard deviation: an estimate less sure than this is probed sooner
SOONEST = 0.15 -- factor on the way back for the least sure estimate
PROBE = 0.05 -- share of the estimate by which a probe exceeds it until a rise is proved; a bucket that saves nothing
--              is estimated low by as much (control)
PROBE_MS = 1000 -- ms in which that excess has grown to CUT: a probe must outlast a rejection's way back
CLIMB_MS = 3000 -- ms in which a rate grows e-fold once a rise is proved; it overshoots a bucket of a second by two
CLIMB_CALLS = 20 -- calls: the same for slow lanes, at least
UNSURE_CLIMB_MS = 1000 -- ms for the same where the estimate is unsure: a rejection's way back is a tenth of it
BOUNDED = 1.05 -- factor: a curve this far above what the lane may use is bounded by something else
-- rate/rate: the ramp after an outage.
RAMP_MS = 10000 -- ms from a closed circuit to the full rate
RAMP_OF_OUTAGE = 0.25 -- share of an outage's length that its ramp takes at most: a short outage needs no long ramp
RAMP_FROM = 0.1 -- share of the rate at which that ramp begins
-- rate/refusal_budget
REFUSAL_BUDGET = 0.005 -- share of calls: LaneLimits.refusal_budget where a lane does not configure it
COST_WEIGHT = 0.3 -- weight of the latest epoch in the cost of a probe
PUT_OFF = 1.15 -- factor on the time between probes after one that found nothing new (control)
PUT_OFF_MOST = 2.3 -- the most of that factor: one probe every 46 s at 600 calls a minute (control)
WAITED = 0.02 -- share of its time that a lane may wait because of probes, if waiting costs calls
PROBE_TAKES_MS = 6000 -- ms: a probe spends what the provider saved during a rejection, 0.2 s of the rate, at 5 % of it
-- rate/rate: limits that somebody else knows.
UNDER_REPORTED = 0.997 -- share of a reported limit: just below it, so that jitter meets no 429 (control)
LEAST_OF_REPORTED = 0.05 -- share of a reported limit that is used, however much others use the same key
UNRENEWED_MS = 20000 -- ms after which a report that no answer has renewed no longer bounds a learned rate
UNRENEWED_CALLS = 100 -- calls after which this is so at the earliest, as slow lanes can afford few 429s
LEAST_OF_CONFIGURED = 0.01 -- share of a configured limit below which 429s lower no rate: they have another cause

-- buckets/buckets: bursts, in ms of the rate.
GATHER_MS = 50 -- ms: half of SPREAD_MS, so that calls that leave together do not count as a burst
CONFIGURED_GATHER_MS = 250 -- ms: the same with a configured burst; it saves four of five requests for permits
GATHER_CALLS = 6 -- calls that gather at most: more at once wait for each other at two workers
SPREAD_MS = 100 -- ms over which requests that leave at once are spread when they reach the provider
LEARNED_BURST_MS = 250 -- ms of a rate that nobody configured, saved at most at first: the bucket's depth is unknown

-- estimate/limit_estimator and estimate/estimate_filter: a Kalman filter on the rates measured between two openings.
WANDER = 0.002 -- share of the limit by which it may move in a second; process noise (control)
BELOW_REFUSED = 0.8 -- share of the rate that met a 429, as an upper bound of the limit without a measurement
SAVED_OF_WAIT = 0.5 -- share of a named wait that a provider's bucket is assumed to have saved: between all and nothing
ENOUGH_CALLS = 20 -- calls between two openings: with fewer, one at each end blurs the measured rate
PROVED = 2 -- standard deviations of a count by which a lane must have had more than its estimate to refute it
STRAYS = 4 -- 429s in a row before the lane is back: fewer are an estimate that was too high
MOST_STRAYS = 16 -- the most that are required: a limit is found within as many
FALLEN = 0.7 -- share of the estimate before them: a smaller fall is the limit's own noise
STRAY_DOUBT = 0.25 -- relative standard deviation after them: the next look goes half as high again
SURPRISE = 3 -- standard deviations beyond which the limit has moved, not the measurement
KEPT_OF_NEW = 0.9 -- share of a configured or reported rate that is kept at a 429
KEPT_OF_PROBE = 0.95 -- share of a slow probe's rate: it grows by less in the time that a 429 takes to arrive
NEW_GROUND = 1.15 -- factor on the estimate: the limit is near a 429 above it
STARTED_WITH = 0.5 -- share of the rate that slow start had reached: it overshoots by up to two (RFC 5681)
SAVED_MS = 1000 -- ms of the rate that a provider's bucket may have saved while the lane was not used to the full
SHUT_STILL_MS = 500 -- ms: if next to nothing went through for less, a window of a second is still shut
LONG_REFUSAL_MS = 2500 -- ms: longer 429s are a window's, as a bucket earns some calls sooner

-- reported/hints
FAR_HIGHER = 3 -- factor: limits that are sold grow by less at a time
NOT_REPORTED = 0.8 -- share of a report below which 429s measure another limit: a true one is met within some per cent

-- rate/lift
LIFT_MS = 250 -- ms in which a rate grows e-fold towards a first report: some round trips, so a 429 ends it in time
LIFT_SHOWN = 0.5 -- share of a first report at which the lift begins if headers show the bucket's depth: the rest takes
--                  about LIFT_MS, while the burst that they show is on its way

-- rate/probe_slope: providers that reject a growth they find too fast.
FAIR = 0.9 -- share of the ground: a limit above it was found by the probe. Share of the rate before: a limit below it
--           means that the probe was too steep
STEEPER = 1.5 -- factor on the slope after a probe that found the limit
GENTLER = 0.7 -- factor on the slope after a gentle probe that was still too steep
KNOWN_WITHIN = 0.11 -- relative standard deviation above which a lane still searches and has no ground of its own
CLEAR = 0.95 -- share of that ground below which the lane stays
CLEAR_MS = 120000 -- ms for which it stays there at first; then twice as long each time
CLEAR_MOST_MS = 3600000 -- ms: the longest such time, since limits are raised

-- refusal/exhausted
OVERTAKEN = 0.25 -- share of a rejection's way: calls that start within it may overtake each other, there or back
CUT_CALLS = 2 -- calls since the last such 429 by which the rate is assumed too high: one more is normal for a bucket
CUT_LEAST = 0.03 -- share of the rate by which it is lowered at least: windows hold whole calls, and count jitter
CUT_MOST = 0.3 -- the most: a burst of such 429s may have another cause

-- reported/window_detector: limits per fixed minute.
WINDOW_MS = 60000 -- ms: every provider's rate is a minute's
AGREE_MS = 200 -- ms by which two ends of 429s may differ and still be one boundary: network jitter
MISSED_MS = 500 -- ms after a boundary at which a rejected call proves that it is not there
LONG_AGO_MS = 300000 -- ms: five windows without a long refusal, and it is forgotten
EDGES_ENOUGH = 2 -- ends of 429s that must agree: one alone may be chance
LEAST_FULL = 0.4 -- share of the estimate that a window must have let through before it shuts

-- lane/advance
SLACK_MS = 1000 -- ms in which jobs, not the limit, were scarce: the provider may have saved as much as it can

-- refusal/refusal: when a lane that was rejected tries again.
BACK_OFF_MS = 100 -- ms after the first 429, doubled with each
BACK_OFF_MOST_MS = 2000 -- ms: no limit in calls a minute above 15 shuts for longer
RARELY_MS = 30000 -- ms: the same for the slowest lanes
SHUT_PART = 4 -- divisor of the time without an admitted call, for the least wait: the limit may be as slow (control)
PROBES = 2 -- 429s in a row after which a lane waits for longer
PROBES_OF_CALLS = 0.4 -- share of the calls before them, if that is more: for a minute's window of 80 calls, 32
SHUT_MOST_MS = 300000 -- ms: the longest such wait, five minutes
EDGE_MARGIN_MS = 20 -- ms after a known boundary: half a round trip

-- Constants of shared keys: how others are detected, and how much of a limit is left to them. Each line has its unit,
-- then the reason for its value; (control) as in rate/constants.
-- GIVES: APART_MS APART_CALLS APART_UNKNOWN APART_MOST_MS SAME_RENEWAL_MS REFILL_NEAR FULLEST SMOOTHING SHARED_FROM
--       UNSEEN_MS UNSEEN_HALF_MS FREE_OF_LEFT SPEND_MS FLAT_MS

-- reported/others
APART_MS = 2000 -- least ms between two reports of a remainder that are compared
APART_CALLS = 50 -- calls of the reported rate between them: one call more or less is 2 %
APART_UNKNOWN = 6 -- the same for tokens, as a multiple of how far the lane's own may be miscounted: a sixth
APART_MOST_MS = 25000 -- ms: the most that these calls may take, so that two such pairs fit into a minute
SAME_RENEWAL_MS = 1500 -- ms by which renewals of one window differ: headers count in seconds
REFILL_NEAR = 0.25 -- share by which a reset differs from the time in which a bucket fills: whole seconds, and jitter
FULLEST = 0.9 -- share of the fullest bucket seen: above it a bucket may have overflowed, and others leave enough
SMOOTHING = 0.3 -- weight of the latest measurement of what others use (control)
SHARED_FROM = 0.03 -- share of the limit below which others' use is noise

-- rate/rate
UNSEEN_MS = 60000 -- ms without signs of others until they count for less: a lane may be blocked for as long
UNSEEN_HALF_MS = 60000 -- ms: from then on, what they are assumed to take halves in this time
FREE_OF_LEFT = 0.5 -- share of what is left that may be used in a minute: others had to take more than the lane does
SPEND_MS = 10000 -- ms in which the last of what a bucket has saved is spent: reports are up to 2 s old (control)
FLAT_MS = 3600000 -- ms after a 429 for which nothing is taken to be saved: an hour, since limits are raised

-- Constants of named waits (refusal/named_waits): when a call tries one, and what it shows.
-- GIVES: LEAST_TRIED_MS TRY_MS TRY_PART FREE_TRIES MOST_VAIN TRY_ANSWERED TRY_REJECTED DISBELIEVED MOST_ODDS
--       LEAST_ODDS

LEAST_TRIED_MS = 900 -- ms: shorter waits are not tried, as they cost little; most are of buckets that earn a call
TRY_MS = 1000 -- ms: the longest part of a wait until a call tries it
TRY_PART = 0.25 -- share of a wait after which a call tries it, up to TRY_MS
FREE_TRIES = 3 -- rejected tries from which on the calls between two tries double, too
MOST_VAIN = 12 -- rejected tries from which on the time between two tries stays an hour
TRY_ANSWERED = 1.6 -- log of the odds of an answer: half of the calls if 429s come by chance, a tenth on a shut lane
TRY_REJECTED = 0.64 -- the same, the other way, of a rejection: half of the calls by chance, 19 of 20 on a shut lane
DISBELIEVED = 3 -- log of the odds from which a named wait is only the call's: two answers
MOST_ODDS = 7 -- the highest log of the odds: waits are believed again after seven rejections in a row
LEAST_ODDS = -2 -- the lowest: four answers outweigh all that came before

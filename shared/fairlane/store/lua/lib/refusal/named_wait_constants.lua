-- Constants of waits that are named (refusal/named_waits): when a call tries them, and what it shows.
-- GIVES: LEAST_TRIED_MS TRY_MS TRY_PART FREE_TRIES MOST_VAIN TRY_ANSWERED TRY_REJECTED DISBELIEVED MOST_ODDS
--       LEAST_ODDS

LEAST_TRIED_MS = 900 -- ms: shorter waits are the lane's, as they cost it little; most are of buckets that earn a call
TRY_MS = 1000 -- ms of a wait after which a call tries it at most
TRY_PART = 0.25 -- share of a shorter wait after which it does
FREE_TRIES = 3 -- calls in vain from which those between two tries double, too
MOST_VAIN = 12 -- calls in vain from which the time between two tries grows no more: an hour
TRY_ANSWERED = 1.6 -- logarithm of the odds by an answer: half of the calls by chance, a tenth of a shut lane's
TRY_REJECTED = 0.64 -- the same the other way, by a rejection: half of the calls by chance, 19 of 20 of a shut lane's
DISBELIEVED = 3 -- odds from which a named wait is the call's alone: two answers
MOST_ODDS = 7 -- the most odds: waits are believed again after seven rejections in a row
LEAST_ODDS = -2 -- the least: four answers outweigh whatever came before

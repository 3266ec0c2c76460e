-- Constants of the reservations on the token axes. Each line has its unit, then its source or the reason for its value.
-- GIVES: REMEMBERED PRIOR_CALLS USUAL_ANSWER USUAL_PROMPT PART_OF_ESTIMATE MISS_CALLS FEW_CALLS FIRST_CALLS RISK
--       RISK_Z BEYOND_FULL CALLS_UNPAID EXCUSED EXCUSES_MOST LEAST_SHARE MOST_INPUT_SHARE

-- tokens/expected_lengths and tokens/learn_lengths
REMEMBERED = 128 -- calls: long enough for a mean within a tenth of its spread, short enough to follow a change
PRIOR_CALLS = 4 -- calls as which the lane's history counts: the answers of a run outweigh it after a handful
USUAL_ANSWER = 1 -- standard deviation ÷ mean of answers before any is known: lengths are about exponential
USUAL_PROMPT = 0.1 -- the same for how prompts miss their estimate
PART_OF_ESTIMATE = 0.25 -- share of the estimate that answers are taken to have, should the first be short by chance
MISS_CALLS = 32 -- calls over which misses are averaged
FEW_CALLS = 16 -- calls: while so few are known, each makes the next reservation surer
LEAST_SHARE = 0.01 -- multiple of an estimated prompt: a call is never free
MOST_INPUT_SHARE = 16 -- multiple: a character may be four bytes, each a token, where four characters were taken for one

-- tokens/token_margins
FIRST_CALLS = 8 -- calls that start on a guess before any answer is known
RISK = 0.01 -- of a call: that the calls in flight use more than is reserved for them
RISK_Z = 2.33 -- the same in standard deviations of a normal distribution
BEYOND_FULL = 0.35 -- standard deviations by which a call waits beyond a full bucket: so 1 or 2 % are refused by a
--                    bucket of three calls that differ by 60 %; without it 2 to 7 %, and with 0.6 much rate is lost
CALLS_UNPAID = 2 -- calls in flight whose excess what spilled has not paid for, where each call waits beyond full

-- tokens/length_refusals
EXCUSED = 0.04 -- share of calls whose refusal says only how long calls are: four times what their reservations risk
EXCUSES_MOST = 2 -- refusals that may be excused in a row: long answers come together

-- Constants of the reservations on the token axes. Each line has its unit, then its source or the reason for its value.
-- GIVES: REMEMBERED PRIOR_CALLS USUAL_ANSWER USUAL_PROMPT PART_OF_ESTIMATE MISS_CALLS FEW_CALLS FIRST_CALLS RISK
--       RISK_Z BEYOND_FULL CALLS_UNPAID EXCUSED EXCUSES_MOST LEAST_SHARE MOST_INPUT_SHARE

-- tokens/expected_lengths and tokens/learn_lengths
REMEMBERED = 128 -- calls: long enough for a mean within a tenth of its spread, short enough to follow a change
PRIOR_CALLS = 4 -- calls for which the lane's history counts: a handful of a run's answers outweighs it
USUAL_ANSWER = 1 -- standard deviation ÷ mean of answers before any is known: lengths are about exponential
USUAL_PROMPT = 0.1 -- the same for how prompts miss their estimate
PART_OF_ESTIMATE = 0.25 -- least share of the estimate that is expected, as the first answers may be short by chance
MISS_CALLS = 32 -- calls over which deviations from the expected tokens are averaged
FEW_CALLS = 16 -- calls: while fewer are known, each makes the next reservation surer
LEAST_SHARE = 0.01 -- multiple of an estimated prompt: a call is never free
MOST_INPUT_SHARE = 16 -- multiple: a character may be four bytes, each a token, where four characters were taken for one

-- tokens/token_margins
FIRST_CALLS = 8 -- calls that start on a guess before any answer is known
RISK = 0.01 -- probability that the calls in flight use more than is reserved for them
RISK_Z = 2.33 -- the same in standard deviations of a normal distribution
BEYOND_FULL = 0.35 -- standard deviations by which a call waits beyond a full bucket: a bucket of three calls that
--                    differ by 60 % then rejects 1 or 2 %; without it 2 to 7 %, and with 0.6 much rate is lost
CALLS_UNPAID = 2 -- calls in flight whose excess spilled tokens have not paid for, if each call waits beyond full

-- tokens/length_refusals
EXCUSED = 0.04 -- share of calls whose 429s are excused by their lengths: four times RISK
EXCUSES_MOST = 2 -- 429s in a row that may be excused: long answers come together

"""Recognises a rate limit by the names and words that services and their clients give to it."""

import re

from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.spent import BEHIND_LITELLM, LAST_WORD, YOU_HAVE

TOO_MANY_REQUESTS = 429
FORBIDDEN = 403
_BAD_REQUEST = 400

CERTAIN = (401, 402, 404, 405, 413, 414, 415, 422, 431)
"""Statuses that say what is wrong, whatever the code.

A key, money (Google names that ``RESOURCE_EXHAUSTED``, too), a model, or the request: Groq calls one that is
too large ``rate_limit_exceeded``, with a 413.
"""
_WORDED = (FORBIDDEN, 412, 420, 449)
"""Statuses of 4xx that no wrong request has: 412 is Portkey's for a used-up budget, 420 and 449 throttle."""

_OPENING = 120
"""Characters of a message that may name a rate limit where its status does not; a prompt may follow."""

# Names of classes, codes and types in lower case, without "_" and "-", and without "error" or "exception" at
# their end.
_NAMES = frozenset(
    {
        *("ratelimit", "ratelimited", "apiratelimit", "resourceexhausted", "ratequota"),
        # Amazon's: botocore.retries.standard.ThrottledRetryableChecker
        *("throttling", "throttled", "requestthrottled", "requestlimitexceeded", "bandwidthlimitexceeded"),
        *("provisionedthroughputexceeded", "slowdown", "prioritythrottled", "ec2throttled"),
        # Apigee's
        *("spikearrestviolation", "quotaviolation"),
    }
)
_WITHIN = ("ratelimitexceeded", "ratelimitreached", "toomanyrequests")
"""Within longer names: Google's ``userRateLimitExceeded``, watsonx' ``rate_limit_reached_requests``."""
_OF_CLASS = re.compile(r"RateLimit(?:ed|Exceeded)?(?:Error|Exception)?$")
"""How classes of rate limits end: with a capital as in ``LMRateLimitError``, not ``GenerateLimitError``."""
# A quota of a day, a month or another long period, as Google's and watsonx' codes have it.
_QUOTAS = frozenset(
    {
        *("quotaexceeded", "dailylimitexceeded", "tokenquotaexceeded", "tokenquotareached"),
        *("requestquotaexceeded", "requestquotareached"),
    }
)
_BUDGET = "budgetexceeded"
"""How codes of a used-up budget end: LiteLLM's ``budget_exceeded``, Merge's ``project_budget_exceeded``."""
_BURST_RATE = "limitburstrate"
"""DashScope's code of a rate that grows too fast."""
_LONG_OPENING = 500
"""Characters of a rate limit's message that may say so: advice on how to grow follows its first sentence."""
# Anthropic's "Number of request tokens has exceeded your rate limit … maximum usage increase rate", its docs'
# "acceleration limits", DashScope's "Request rate increased too quickly", and Fireworks' "Ensure your
# workload does not double faster than once per 30 minutes".
_GROWTH_WORDS = re.compile(
    r"\busage increase rate\b|\bacceleration limits?\b"
    r"|\b(?:rate|usage|traffic|load)s? (?:has |have |is |are )?"
    r"(?:increased|increasing|grown|growing|ramped up) too (?:quickly|fast|rapidly)\b"
    r"|\bdoes not double faster than\b",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[./#:]")

_TOO_MANY = r"(?<![a-z0-9])too[ _-]?many[ _-]?requests(?![a-z0-9])"
# "rate limit", unless a sentence about a setting goes on: "rate limit must be positive".
_RATE_LIMIT = (
    r"(?<![a-z0-9])(?<!no )(?<!without )(?<!invalid )(?<!unknown )"
    r"rate[ _-]?limit(?:s|ed|ing)?(?![a-z0-9])"
    r"(?!\s+(?:must|should|cannot|may|has to|needs|is (?:not|invalid|missing|required)"
    r"|setting|config|option|parameter|value|header))"
)
_TEXTS = (
    re.compile(_TOO_MANY, re.IGNORECASE),
    # "429" alone or beside a word of HTTP: "HTTP 429", "Error code: 429 - {…}", "429 Client Error".
    # It never counts things: "got 429 rows".
    re.compile(
        r"(?:^|\b(?:http|http/[\d.]+|status|status[ _-]?code|code|error|response|returned|got)\W{0,4})429"
        r"(?=\W*$|[^\w\s]|\s+(?:too|client|error|resource|rate|throttl|quota|-|\())",
        re.IGNORECASE,
    ),
    re.compile(_RATE_LIMIT, re.IGNORECASE),
)
# As in: Quota exceeded; Out of call volume quota; You have exhausted your API Request Quota; Kimi's "You've
# reached your weekly (7-day) usage limit"
_QUOTA_WORDS = re.compile(
    r"\bquota (?:limit +)?(?:is |was |has been )?(?:exceeded|exhausted|reached|used up)\b"
    r"|\b(?:exceeded|exhausted|out of) [a-z ]{0,40}\bquota\b"
    r"|\breached your [a-z0-9() -]{0,30}\busage limit\b",
    re.IGNORECASE,
)
# As in: Budget has been exceeded! Current cost: 14.2; ExceededBudget: End User=x over budget; No deployments
# available - crossed budget; Key limit exceeded (daily limit)
_BUDGET_WORDS = re.compile(
    r"\bbudget (?:has been |is |was )?(?:exceeded|exhausted|reached)\b|\b(?:crossed|exceeded|over) ?budget\b"
    r"|\bkey limit exceeded \((?:daily|weekly|monthly)\b",
    re.IGNORECASE,
)
_AT_ONCE = (
    r"\b(?:concurren(?:t|cy)|(?:parallel|simultaneous|in[- ]?flight) (?:requests?|calls?|connections?))\b"
)
_TOO_MUCH = r"\b(?:too (?:many|high)|limit(?:ed|s)?|max(?:imum)?|exceed(?:s|ed)?|reached|reduce|slots?)\b"
_CONCURRENCY = re.compile(
    rf"{_AT_ONCE}[^.\n]{{0,60}}?{_TOO_MUCH}|{_TOO_MUCH}[^.\n]{{0,60}}?{_AT_ONCE}", re.IGNORECASE
)
"""As in: Too many concurrent requests, You have reached the concurrent request limit (Kimi, with a 403),
timed out waiting for a concurrent request slot (Ollama, inside a 200)."""
_OF_SETTING = re.compile(
    r"\b(?:must|should|cannot|invalid|unknown|unsupported|parameter"
    r"|not (?:allowed|supported|enabled|available))\b",
    re.IGNORECASE,
)
_LITELLMS = re.compile(BEHIND_LITELLM + r"budget has been exceeded! ", re.IGNORECASE)
"""LiteLLM's sentence, which its own proxy and those before it send with a 400, too."""
_USAGE = re.compile(
    rf"{BEHIND_LITELLM}{YOU_HAVE}(?:reached|exceeded|hit|used up) your [\w() -]{{0,40}}?\busage limits?\b",
    re.IGNORECASE,
)
"""As in: You've reached your weekly usage limit. No wrong request has such a message, whatever its status."""
_QUOTATION = re.compile(r"[\"`\n]|(?<!\w)'|'(?!\w)|[.!?](?:\s|$)")
"""Where what a message says by itself ends; the apostrophe in "You've" ends nothing."""
# As in: litellm.RateLimitError, Spike arrest violation, Requests throttling triggered
_OPENINGS = (
    re.compile(rf"{_TOO_MANY}|{_RATE_LIMIT}|(?<![a-z])RateLimitError\b|\bspike arrest\b", re.IGNORECASE),
    # Baidu's "Open api qps request limit reached"
    re.compile(
        r"\b(?:qps|rpm|tpm|requests?) (?:request )?limit (?:is )?(?:reached|exceeded)\b", re.IGNORECASE
    ),
    re.compile(
        r"\bthrottl(?:ed|ing)\b|\brate exceeded\b|\breduce your (?:request )?rate\b|\bslow down\b",
        re.IGNORECASE,
    ),
)


def names_rate_limit(name: str) -> bool:
    """Whether the name of a class, or an error's code or type, means that calls come too fast."""
    known = any(part in _NAMES or any(each in part for each in _WITHIN) for part in _plain(name))
    return known or _OF_CLASS.search(name) is not None


def mentions_rate_limit(text: str) -> bool:
    """Whether the text of an exception names a rate limit anywhere."""
    return any(pattern.search(text) for pattern in _TEXTS)


def is_rate_limit(error: ErrorBody, status: int) -> bool:
    """Whether an error with another status than 429 rejects a call by a rate limit or a quota.

    Its types and codes count with any status that does not say what is wrong. Its first sentence counts with
    a 403, a 412, a 420, a 449 or a 5xx, up to a quotation mark: what a 400 says may be about the request.
    That too many calls run at once counts with a 400, too.
    """
    if status in CERTAIN:
        return False
    if any(names_rate_limit(kind) for kind in error.kinds) or is_used_up(error, status):
        return True
    worded = status in _WORDED or status // 100 == 5
    if (worded or status == _BAD_REQUEST) and limits_concurrency(error):
        return True
    return worded and any(pattern.search(_opening(error.message)) for pattern in _OPENINGS)


def limits_concurrency(error: ErrorBody) -> bool:
    """Whether an error's first sentence says that too many calls run at once."""
    opening = _opening(error.message)
    return _CONCURRENCY.search(opening) is not None and _OF_SETTING.search(opening) is None


def is_used_up(error: ErrorBody, status: int) -> bool:
    """Whether an error says that a budget is used up, or the quota of a longer period.

    A 429 for a quota may be one of a minute. A budget of a gateway is renewed with its period, unlike an
    account's money (`is_spent`).
    """
    names = [part for kind in error.kinds for part in _plain(kind)]
    if any(name.endswith(_BUDGET) for name in names):
        return True
    said = error.message or ""
    if _LITELLMS.match(said) or _USAGE.match(said):
        return True
    opening = _opening(error.message)
    if status in _WORDED and (not _QUOTAS.isdisjoint(names) or _QUOTA_WORDS.search(opening)):
        return True
    return (status in _WORDED or status == TOO_MANY_REQUESTS) and _BUDGET_WORDS.search(opening) is not None


def limits_growth(error: ErrorBody) -> bool:
    """Whether a rejection by rate is for how fast the rate has grown: at that rate the provider continues."""
    if any(name == _BURST_RATE for kind in error.kinds for name in _plain(kind)):
        return True
    return _GROWTH_WORDS.search((error.message or "")[:_LONG_OPENING]) is not None


def _plain(name: str) -> tuple[str, str]:
    """The first and the last part of a name such as ``RateLimitExceeded.EndpointRPMExceeded``.

    Parts between them are subjects: Apigee's ``policies.ratelimit.InvalidMessageWeight`` is no rate limit.
    """
    parts = _PARTS.split(name.lower())
    first, last = (LAST_WORD.sub("", re.sub("[_ -]", "", part)) for part in (parts[0], parts[-1]))
    return first, last


def _opening(message: str | None) -> str:
    return _QUOTATION.split(message[:_OPENING], maxsplit=1)[0] if message else ""

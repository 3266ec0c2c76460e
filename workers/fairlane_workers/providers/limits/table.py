"""A row per provider: the headers that report its limits, and the meaning of its resets."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from fairlane_workers.providers.limits import quirks, ratelimit_fields
from fairlane_workers.providers.limits.clocks import Axes, Clock, clock

Amend: TypeAlias = Callable[[Axes, Mapping[str, str], int], None]


class LimitDialect(NamedTuple):
    """How one provider reports its limits.

    ``reset`` is the meaning of its resets. ``"window"``: the budget is renewed then and not before, so a
    rejected call waits for it even if Retry-After is shorter. ``"full"``: the time to a *full* refill, far
    more than one call needs; it is a wait only if there is no other. ``amend`` corrects the hints of
    providers with quirks.
    """

    name: str
    clocks: tuple[Clock, ...] = ()
    reset: Literal["full", "window"] = "full"
    amend: Amend | None = None

    @property
    def headers(self) -> set[str]:
        """The names of its headers, in lower case."""
        return {name for each in self.clocks for name in (each.limit, each.remaining, each.reset) if name}

    def tells(self, headers: Mapping[str, str]) -> bool:
        """Whether any of its headers is there."""
        return not self.headers.isdisjoint(headers)


_OPENAI = (clock("requests", "x-ratelimit-*-requests"), clock("tokens", "x-ratelimit-*-tokens"))

DIALECTS = {
    row.name: row
    for row in (
        # Token buckets. On some tiers requests are limited per day: the speed of the refill shows it.
        LimitDialect("openai", _OPENAI, "full", quirks.day_of_a_slow_refill),
        # RFC 3339 times of a full refill. ``tokens`` is the tightest token limit in force.
        LimitDialect(
            "anthropic",
            (
                clock("requests", "anthropic-ratelimit-requests-*"),
                clock("tokens", "anthropic-ratelimit-tokens-*"),
                clock("input", "anthropic-ratelimit-input-tokens-*"),
                clock("output", "anthropic-ratelimit-output-tokens-*"),
            ),
        ),
        # Windows of renewalperiod seconds; zeros next to an exhausted axis say nothing.
        LimitDialect("azure", _OPENAI, "window", quirks.azure_limits),
        # No headers: `bodies` reads the errors' bodies.
        LimitDialect("gemini", reset="window"),
        LimitDialect("bedrock"),
        LimitDialect("deepseek"),
        # Token buckets; requests are limited per day.
        LimitDialect(
            "groq", (clock("day", "x-ratelimit-*-requests"), clock("tokens", "x-ratelimit-*-tokens"))
        ),
        LimitDialect(
            "mistral",
            (
                Clock(
                    "tokens",
                    "x-ratelimitbysize-limit-minute",
                    "x-ratelimitbysize-remaining-minute",
                    "ratelimitbysize-reset",
                ),
                clock("requests", "x-ratelimit-*-req-minute", reset=False),
                clock("tokens", "x-ratelimit-*-tokens-minute", reset=False),
            ),
            "window",
            quirks.mistral_month,
        ),
        # All limits are per second.
        LimitDialect(
            "together",
            (
                clock("requests", "x-ratelimit-*", per_minute=60.0),
                clock("tokens", "x-tokenlimit-*", per_minute=60.0),
            ),
            "window",
        ),
        # Two counts of the input: the tighter one counts.
        LimitDialect(
            "fireworks",
            (
                clock("requests", "x-ratelimit-*-requests"),
                clock("input", "x-ratelimit-*-tokens-prompt"),
                clock("input", "x-ratelimit-*-tokens-cache-adjusted-prompt"),
                clock("output", "x-ratelimit-*-tokens-generated"),
            ),
        ),
        LimitDialect(
            "cerebras",
            (
                clock("requests", "x-ratelimit-*-requests-minute"),
                clock("day", "x-ratelimit-*-requests-day"),
                clock("tokens", "x-ratelimit-*-tokens-minute"),
            ),
            "window",
        ),
        LimitDialect("xai", _OPENAI, "window", quirks.xai_seconds),
        # OpenAI's names as any compatible server uses them, and the IETF's.
        LimitDialect("generic", _OPENAI, "full", quirks.fields_of_the_ietf),
    )
}
GENERIC = DIALECTS["generic"]

_HOSTS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure",
    "cognitiveservices.azure.com": "azure",
    "services.ai.azure.com": "azure",
    "models.inference.ai.azure.com": "azure",
    "models.github.ai": "azure",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gemini",
    "aiplatform.googleapis.com": "gemini",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.together.xyz": "together",
    "api.together.ai": "together",
    "api-inference.together.ai": "together",
    "api.fireworks.ai": "fireworks",
    "api.cerebras.ai": "cerebras",
    "api.x.ai": "xai",
    "api.deepseek.com": "deepseek",
    "amazonaws.com": "bedrock",
}

# Names that only one provider uses, so they identify it behind a proxy, too.
_EVIDENCE = {
    **{
        f"anthropic-ratelimit-{axis}-{word}": "anthropic"
        for axis in ("requests", "tokens", "input-tokens", "output-tokens")
        for word in ("limit", "remaining")
    },
    **{f"x-ratelimit-renewalperiod-{axis}": "azure" for axis in ("requests", "tokens")},
    "apim-request-id": "azure",
    "x-ms-region": "azure",
    **{f"x-ratelimitbysize-{word}-minute": "mistral" for word in ("limit", "remaining")},
    **{f"x-ratelimit-{word}-req-minute": "mistral" for word in ("limit", "remaining")},
    **{f"x-ratelimit-{word}-tokens-prompt": "fireworks" for word in ("limit", "remaining")},
    **{f"x-ratelimit-{word}-tokens-generated": "fireworks" for word in ("limit", "remaining")},
    **{f"x-ratelimit-{word}-requests-day": "cerebras" for word in ("limit", "remaining")},
}

NAMES = frozenset(name for row in DIALECTS.values() for name in row.headers) | {
    *ratelimit_fields.NAMES,
    *quirks.NAMES,
}


def dialect_of(host: str) -> str:
    """The dialect of a well-known host; ``"generic"`` for any other."""
    name = host.lower().rstrip(".")
    while name:
        if name in _HOSTS:
            return _HOSTS[name]
        # A region precedes the name with a dot, or (Vertex AI) with a hyphen.
        if name.endswith("-aiplatform.googleapis.com"):
            return "gemini"
        _, _, name = name.partition(".")
    return "generic"


def dialect_in(headers: Mapping[str, str], named: str | LimitDialect | None) -> LimitDialect:
    """The dialect that the headers prove, else the named one, else the generic one.

    A `LimitDialect` is a protocol's own: it takes precedence where its headers are there.
    """
    if isinstance(named, LimitDialect) and named.tells(headers):
        return named
    if not _EVIDENCE.keys().isdisjoint(headers):
        return DIALECTS[next(_EVIDENCE[name] for name in headers if name in _EVIDENCE)]
    return DIALECTS.get(named, GENERIC) if isinstance(named, str) else named or GENERIC


def tells_limits(headers: Mapping[str, str], named: str | LimitDialect | None = None) -> bool:
    """Whether any header is in this table, or in a protocol's own dialect."""
    return not NAMES.isdisjoint(headers) or (isinstance(named, LimitDialect) and named.tells(headers))

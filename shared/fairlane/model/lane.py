"""Lanes: the names of rate limits, and the limits that an operator configures for them."""

import re
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field

from fairlane.core.section import MOST_COUNT, MOST_LEASE_S

QUEUE_PREFIX = "fairlane.lane."

FUNCTIONS = "python"
"""The connection whose models are Python functions: ``python:package.module:function``."""

ENDPOINT_PREFIXES = ("http", "https", "id")
"""How the names of endpoints' lanes begin: `endpoint_id`."""

LaneScope = Literal["model", "connection", "endpoint"]

ENDPOINT_CONCURRENCY = 4
"""Concurrent calls with which an unconfigured endpoint starts: few enough for a small server."""
Charge = Literal["used", "reserved"]
CacheReads = Literal["free", "counted"]


class LaneLimits(BaseModel):
    """Configured limits of a lane. Fairlane detects those that are left out.

    A number is a ceiling: the lane may learn that the provider allows less, unless ``exact``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    requests_per_minute: float | None = Field(default=None, ge=0, le=MOST_COUNT)
    """Requests a minute. 0: no limit. Default: detected."""

    tokens_per_minute: float | None = Field(default=None, ge=0, le=MOST_COUNT)
    """Input plus output tokens a minute. 0: no limit."""

    input_tokens_per_minute: float | None = Field(default=None, ge=0, le=MOST_COUNT)
    """Input tokens a minute. 0: no limit."""

    output_tokens_per_minute: float | None = Field(default=None, ge=0, le=MOST_COUNT)
    """Output tokens a minute. 0: no limit."""

    requests_per_day: int | None = Field(default=None, ge=0, le=MOST_COUNT)
    """Requests a day, which ends at midnight UTC. 0: no limit."""

    exact: bool = False
    """Use exactly these limits, and ignore what the lane learns. Otherwise they are ceilings."""

    charge: Charge = "used"
    """Tokens that the provider charges: "used", or "reserved": the prompt and `max_tokens`."""

    output_factor: float = Field(default=1.0, gt=0, le=100)
    """How many tokens an output token counts as in the token limits."""

    cache_reads: CacheReads = "free"
    """Whether input that was read from a cache is charged like the rest."""

    burst_seconds: float = Field(default=1.0, gt=0, le=3600)
    """How many seconds of unused rate may be spent at once."""

    max_concurrency: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    """Most calls in flight at once. Default: as many as the workers' slots."""

    first_concurrency: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    """Concurrent calls with which the lane starts. They grow while that yields more answers a second.
    Default: 4 on an endpoint without `max_concurrency`, else as many as the other limits allow."""

    models_at_once: int | None = Field(default=None, ge=1, le=100)
    """Models that the server holds at once, such as 1 for a single GPU. Calls of others wait while these have
    jobs, for `model_seconds` at most. Default: any number."""

    model_seconds: float = Field(default=60.0, gt=0, le=86_400)
    """Seconds for which calls of other models wait, with `models_at_once`. A change costs a load, so make it
    several times as long as a load."""

    min_gap_ms: int = Field(default=0, ge=0, le=1000 * MOST_LEASE_S)
    """Least time between two starts, in milliseconds."""

    outage_failures: int = Field(default=5, ge=1, le=1000)
    """Failures in a row, started apart in time, after which the lane counts as down."""

    outage_delay: float = Field(default=1.0, gt=0, le=3600)
    """Seconds until the first probe of a lane that is down."""

    outage_growth: float = Field(default=1.25, ge=1, le=100)
    """Factor on that delay for each failed probe."""

    outage_longest_delay: float = Field(default=60.0, gt=0, le=86_400)
    """Most seconds between two probes of a lane that is down."""

    longest_wait_seconds: float = Field(default=3600.0, ge=1, le=7 * 86_400)
    """Longest wait for which a provider may block the lane. One that asks for more holds it: a probe asks
    again each time these seconds have passed."""

    refusal_budget: float = Field(default=0.005, gt=0, le=0.1)
    """Share of calls that may be rejected while the lane probes for more than it has learned."""


def split_model(reference: str) -> tuple[str, str]:
    """``"<connection>:<model>"`` → its two parts. Raises ``ValueError`` if one is missing."""
    connection, separator, model = reference.partition(":")
    if not (separator and connection.strip() and model.strip()):
        raise ValueError(f'a model is written "<connection>:<model>", got {reference!r}')
    return connection.strip(), model.strip()


def lane_key(connection: str, model: str, scope: LaneScope, base_url: str = "") -> str:
    """The lane of a model: its own, or the one that all models of its connection or of its server share."""
    if scope == "endpoint":
        return endpoint_id(base_url)
    return f"{connection}:{model}" if scope == "model" else connection


def endpoint_id(reference: str) -> str:
    """One name per endpoint: a URL's scheme, host and port; ``id:`` before a bare name.

    ``http://api.example.com:8080/v1`` becomes ``http:api.example.com:8080``, ``gpt-4o`` becomes
    ``id:gpt-4o``, and ``openai:gpt-4o`` stays as it is, for it names its provider.
    """
    text = reference.strip()
    if "://" in text:
        parts = urlsplit(text)
        return f"{parts.scheme.lower()}:{host_of(parts)}"
    return text if ":" in text else f"id:{text}"


def host_of(url: SplitResult) -> str:
    """Host and port of a URL, in lower case, without the default port of its scheme."""
    usual = {"http": ":80", "https": ":443"}.get(url.scheme.lower(), "")
    return url.netloc.rpartition("@")[2].lower().removesuffix(usual)


def queue_name(lane: str) -> str:
    """The Celery queue of a lane. Characters that a broker may treat specially become ``_``."""
    return QUEUE_PREFIX + re.sub(r"[^A-Za-z0-9_.:\-/]", "_", lane)

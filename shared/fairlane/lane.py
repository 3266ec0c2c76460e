"""Who shares a limit: connection and model name a lane; an operator's numbers describe it."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field

QUEUE_PREFIX = "fairlane.lane."

FUNCTIONS = "python"
"""The connection whose models are Python functions: ``python:package.module:function``."""

LaneScope = Literal["model", "connection", "endpoint"]

ENDPOINT_CONCURRENCY = 4
"""Calls at once on an endpoint that nobody has described."""
Charge = Literal["used", "reserved"]
CacheReads = Literal["free", "counted"]


class LaneLimits(BaseModel):
    """What an operator knows of a lane. What is left out is found out.

    A number is a ceiling: the lane may learn that less is allowed, unless ``exact``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    requests_per_minute: float | None = Field(
        default=None, ge=0, description="Requests a minute. 0: never limited. Left out: found out."
    )
    tokens_per_minute: float | None = Field(
        default=None, ge=0, description="Input plus output tokens a minute. 0: never limited."
    )
    input_tokens_per_minute: float | None = Field(
        default=None, ge=0, description="Input tokens a minute. 0: never limited."
    )
    output_tokens_per_minute: float | None = Field(
        default=None, ge=0, description="Output tokens a minute. 0: never limited."
    )
    requests_per_day: int | None = Field(
        default=None, ge=0, description="Requests a day, which ends at midnight UTC. 0: never limited."
    )
    exact: bool = Field(
        default=False,
        description="Keep to these limits, whatever is learned. Else they are ceilings.",
    )
    charge: Charge = Field(
        default="used",
        description='Tokens that the provider charges: "used", or "reserved": the prompt and `max_tokens`.',
    )
    output_factor: float = Field(
        default=1.0, gt=0, le=100, description="What an output token costs of the token limits."
    )
    cache_reads: CacheReads = Field(
        default="free", description="Whether input that was read from a cache is charged like the rest."
    )
    burst_seconds: float = Field(
        default=1.0, gt=0, le=3600, description="How many seconds of unused rate may be spent at once."
    )
    max_concurrency: int | None = Field(
        default=None, ge=1, description="Most calls in flight at once. Left out: bounded by slots alone."
    )
    min_gap_ms: int = Field(default=0, ge=0, description="Least time between two starts, in milliseconds.")


def split_model(reference: str) -> tuple[str, str]:
    """``"<connection>:<model>"`` → its two parts. Raises ``ValueError`` where one is missing."""
    connection, separator, model = reference.partition(":")
    if not (separator and connection.strip() and model.strip()):
        raise ValueError(f'a model is written "<connection>:<model>", got {reference!r}')
    return connection.strip(), model.strip()


def lane_key(connection: str, model: str, scope: LaneScope, base_url: str = "") -> str:
    """The lane of a model: its own, or its connection's where all models share one limit, or its server's."""
    if scope == "endpoint":
        return endpoint_id(base_url)
    return f"{connection}:{model}" if scope == "model" else connection


def endpoint_id(reference: str) -> str:
    """One name for whatever is one endpoint: a URL's scheme, host and port; ``id:`` before a bare name.

    ``http://api.example.com:8080/v1`` is ``http:api.example.com:8080``, ``gpt-4o`` is ``id:gpt-4o``, and what
    names its provider (``openai:gpt-4o``) stays as it is.
    """
    text = reference.strip()
    if "://" in text:
        parts = urlsplit(text)
        return f"{parts.scheme.lower()}:{host_of(parts)}"
    return text if ":" in text else f"id:{text}"


def host_of(url: SplitResult) -> str:
    """Host and port of a URL, in lower case, without the port that its scheme has anyway."""
    usual = {"http": ":80", "https": ":443"}.get(url.scheme.lower(), "")
    return url.netloc.rpartition("@")[2].lower().removesuffix(usual)


def queue_name(lane: str) -> str:
    """The Celery queue of a lane. Characters that a broker may treat specially become ``_``."""
    return QUEUE_PREFIX + re.sub(r"[^A-Za-z0-9_.:\-/]", "_", lane)

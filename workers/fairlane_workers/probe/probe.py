"""``python -m fairlane_workers.probe``: makes one call and reports the result, as JSON."""

import argparse
import asyncio
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import httpx

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.lane_identity import lane_identity
from fairlane.config.loader import load_secrets, load_settings
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.errors import ConfigurationError, FairlaneError
from fairlane.core.redaction import mask_text
from fairlane.model.hints import AxisHint
from fairlane.model.lane import LaneLimits
from fairlane.model.outcome import Outcome, Success, UnsupportedParameter
from fairlane.model.tokens import Usage
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.http.provider import HttpProvider
from fairlane_workers.providers.http.reply_reader import plain
from fairlane_workers.providers.limits.table import (
    DIALECTS,
    GENERIC,
    NAMES,
    LimitDialect,
    dialect_in,
    tells_limits,
)
from fairlane_workers.providers.registry import build_provider, open_transport
from fairlane_workers.providers.unsupported.adapting import AdaptingProvider
from fairlane_workers.transport import Reply, Transport

PROMPT = "Say hello in one short sentence."
MAX_TOKENS = 256
TIMEOUT_S = 60.0
MOST_BYTES = 1024 * 1024
MOST_ADAPTED = 3
"""Further calls, each without one more parameter that the model does not support."""
SHOWN_CHARS = 500
LEAST_APART = 16  # tokens by which the two ways of charging must differ, so that one call distinguishes them
TOLERANCE = 0.25  # of a charge: a provider estimates a prompt before it reads it


class RecordingTransport(Transport):
    """A transport that keeps the headers of the last reply."""

    last: Mapping[str, str] | None = None

    async def send(
        self,
        method: str,
        url: httpx.URL,
        headers: httpx.Headers,
        content: bytes = b"",
        leave: Callable[[], object] | None = None,
    ) -> Reply:
        """See `Transport.send`."""
        reply = await super().send(method, url, headers, content, leave)
        self.last = plain(reply.headers)
        return reply


@dataclass(frozen=True, slots=True)
class Question:
    """The call to make. ``max_tokens`` 0: send none. ``stream`` ``None``: as the connection configures."""

    model: str
    prompt: str = PROMPT
    max_tokens: int = MAX_TOKENS
    stream: bool | None = None
    timeout_s: float = TIMEOUT_S


@dataclass(slots=True)
class Pieces:
    """Counts the streamed pieces of the answer, and measures the time to the first."""

    clock: Clock
    started_ms: int
    first_ms: int | None = None
    count: int = 0

    async def add(self, text: str) -> None:
        """Note a piece that arrives now."""
        if self.first_ms is None:
            self.first_ms = self.clock.monotonic_ms() - self.started_ms
        self.count += 1


async def probe(settings: Settings, secrets: WorkerSecrets, name: str, question: Question) -> dict[str, Any]:
    """Make one call on a connection and report the result. The report contains no secrets.

    If the model rejects a parameter, the call is made once more without it.

    Raises `ConfigurationError` if the connection does not exist, lacks its key, or cannot be used.
    """
    clock = SystemClock()
    connection = _connection(settings, secrets, name)
    transport = open_transport(name, connection, secrets.proxies.get(name), kind=RecordingTransport)
    built = build_provider(name, connection, secrets.keys.get(name), transport=transport, clock=clock)
    lane = settings.lane_of(f"{name}:{question.model}")
    chosen = connection.stream if question.stream is None else question.stream
    stream = chosen is not False
    params = {"max_tokens": question.max_tokens} if question.max_tokens else {}
    if connection.endpoint is not None and connection.endpoint.unsent(params):
        params = {}
    request = Request(
        question.model,
        [{"role": "user", "content": question.prompt}],
        params,
        stream,
        question.timeout_s,
        MOST_BYTES,
        lane=lane,
        optional=frozenset({"stream"} if chosen == "auto" else ()),
    )
    named = built.limits if isinstance(built, HttpProvider) else None
    provider = AdaptingProvider(name, built, clock, logs=False)
    pieces = Pieces(clock, clock.monotonic_ms())
    try:
        outcome = await provider.call(request, pieces.add)
        for _ in range(MOST_ADAPTED):
            if not isinstance(outcome, UnsupportedParameter):
                break
            stream = stream and outcome.parameter != "stream"
            pieces = Pieces(clock, clock.monotonic_ms())
            outcome = await provider.call(request, pieces.add)
    finally:
        took_ms = clock.monotonic_ms() - pieces.started_ms
        await provider.aclose()
    shown = connection.model_copy(update={"base_url": mask_text(connection.base_url)})
    return {
        "connection": name,
        "provider": connection.provider,
        "protocol": connection.protocol,
        "base_url": shown.base_url,
        "model": question.model,
        "lane": lane,
        "shared_by": lane_identity(shown, question.model),
        "streamed": stream,
        "latency_ms": took_ms,
        "first_piece_ms": pieces.first_ms if stream else None,
        "pieces": pieces.count,
        **_fields(outcome),
        "limits": _limits(connection, named, transport.last or {}, outcome),
        "charge": _charge(
            settings.limits_of(lane) or LaneLimits(),
            question,
            outcome,
            dialect_in(transport.last or {}, named),
        ),
    }


def _connection(settings: Settings, secrets: WorkerSecrets, name: str) -> Connection:
    connection = settings.connections.get(name)
    if connection is None:
        known = ", ".join(settings.connections) or "none"
        raise ConfigurationError("NAME", name, "there is no such connection", f"Configured: {known}.")
    place = connection.key_place
    if place is not None and name in secrets.missing:
        problem = f"this {place.kind} {place.absence} here"
        remedy = "See to it in this environment." if place.changes else "Set it in this environment."
        raise ConfigurationError(f"connections.{name}.{place.field}", place.name, problem, remedy)
    return connection


def _fields(outcome: Outcome) -> dict[str, Any]:
    """The fields of the outcome."""
    fields: dict[str, Any] = {
        "outcome": type(outcome).__name__,
        "status": outcome.status,
        "retry_after_ms": outcome.retry_after_ms,
    }
    if not isinstance(outcome, Success):
        return fields | {"message": outcome.message}
    return fields | {
        "output": outcome.output[:SHOWN_CHARS],
        "left_out": list(outcome.left_out),
        "finish_reason": outcome.finish_reason,
        "usage": asdict(outcome.usage),
    }


def _limits(
    connection: Connection, named: str | LimitDialect | None, headers: Mapping[str, str], outcome: Outcome
) -> dict[str, Any]:
    """The dialect of the reported limits, how it was detected, and the hints of each axis."""
    reported, hints, dialect = tells_limits(headers, named), outcome.hints, dialect_in(headers, named)
    return {
        "dialect": dialect.name if reported else None,
        "known_by": _known_by(connection, dialect, headers) if reported else None,
        "headers": {name: headers[name] for name in sorted({*NAMES, *dialect.headers} & headers.keys())},
        "axes": {axis: hint._asdict() for axis, hint in hints.axes.items()} if hints else {},
        "exhausted": hints.exhausted if hints else None,
    }


def _known_by(connection: Connection, dialect: LimitDialect, headers: Mapping[str, str]) -> str:
    if DIALECTS.get(dialect.name) is not dialect:
        return "protocol"
    if dialect_in(headers, None) is not GENERIC:
        return "headers"
    if connection.limit_headers is None:
        return "host"
    usual = connection.preset.limit_headers if connection.provider and connection.preset else None
    return "provider" if connection.limit_headers == usual else "limit_headers"


def _charge(
    limits: LaneLimits, question: Question, outcome: Outcome, dialect: LimitDialect
) -> dict[str, Any]:
    said = limits.model_dump(include={"charge", "output_factor", "cache_reads"})
    if not isinstance(outcome, Success):
        return said
    tokens = outcome.hints.axes.get("tokens") if outcome.hints else None
    if tokens is not None and dialect.reset != "full":
        tokens = tokens._replace(reset_ms=None)
    verdict, reason = check_charge(limits, outcome.usage, question.max_tokens, tokens)
    return said | {"verdict": verdict, "reason": reason}


class ChargeCheck(NamedTuple):
    """The result of the comparison: ``"agrees"``, ``"differs"`` or ``"unknown"``, and the reason."""

    verdict: Literal["agrees", "differs", "unknown"]
    reason: str


def check_charge(
    limits: LaneLimits, usage: Usage, max_tokens: int | None, tokens: AxisHint | None
) -> ChargeCheck:
    """Compare the tokens missing from a limit with the charge that ``usage`` and ``max_tokens`` predict.

    ``limits`` say how the lane counts on being charged.

    The missing tokens are those that refill within ``reset_ms``, if the answer reports it; otherwise the
    limit minus the remaining tokens. The result is valid only if the lane was full and nobody else uses it.
    """
    if tokens is None or tokens.limit is None or tokens.remaining is None:
        return ChargeCheck("unknown", "the answer does not report how many tokens are left")
    if usage.input_tokens is None or usage.output_tokens is None:
        return ChargeCheck("unknown", "the answer does not report what it used")
    gone, doubt = tokens.limit - tokens.remaining, LEAST_APART / 2
    if tokens.reset_ms is not None:  # the bucket may hold less than a minute's tokens
        a_millisecond = tokens.limit / 60_000
        gone, doubt = min(gone, round(tokens.reset_ms * a_millisecond)), doubt + a_millisecond
    used = usage.input_tokens + math.ceil(usage.output_tokens * limits.output_factor)
    reserved = usage.input_tokens + math.ceil((max_tokens or 0) * limits.output_factor)
    if reserved - used < LEAST_APART + TOLERANCE * reserved:
        return ChargeCheck("unknown", "what was used and what was reserved are too alike: raise --max-tokens")
    fitting = [
        name
        for name, cost in (("used", used), ("reserved", reserved))
        if abs(gone - cost) <= doubt + TOLERANCE * cost
    ]
    if len(fitting) != 1:
        return ChargeCheck(
            "unknown",
            f"{gone:,.0f} tokens are gone, {used:,} were used, {reserved:,} reserved; others may be calling",
        )
    cost = used if fitting == ["used"] else reserved
    return ChargeCheck(
        "agrees" if fitting == [limits.charge] else "differs",
        f"some {gone:,.0f} tokens are gone, {cost:,} were {fitting[0]}",
    )


def main(argv: list[str] | None = None) -> int:
    """Print the report. Returns 2, after a line on standard error, if no call could be made."""
    options = _parse(argv)
    stream = None if options.stream is None else options.stream == "yes"
    question = Question(options.model, options.prompt, options.max_tokens, stream, options.timeout)
    try:
        settings = load_settings(options.config)
        report = asyncio.run(probe(settings, load_secrets(settings), options.name, question))
    except FairlaneError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the command that started this shows it
        return 2
    json.dump(report, sys.stdout, ensure_ascii=False)
    return 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fairlane_workers.probe", description=__doc__)
    parser.add_argument("name", help="the connection")
    parser.add_argument("--config", help="fairlane.toml to read")
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS)
    parser.add_argument("--stream", choices=("yes", "no"))
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds")
    return parser.parse_args(argv)

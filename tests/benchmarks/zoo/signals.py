"""Writes the HTTP headers of a world's provider, and reads them with the code of Fairlane's workers."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.lab.simulator.limits.admission import Axis as LimitedAxis
from fairlane.lab.simulator.limits.admission import Level
from fairlane.lab.simulator.protocols.anthropic_messages import AnthropicMessages
from fairlane.lab.simulator.wire.headers import (
    azure_limit_headers,
    limit_headers,
    openai_limit_headers,
    rejection_headers,
    retry_after_headers,
)
from fairlane.model.hints import Axis, Hints
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.retry_after import retry_after_ms
from fairlane_workers.providers.limits.reading import read_limits, read_refusal
from tests.benchmarks.zoo.admission import Admission, amounts
from tests.benchmarks.zoo.gates import Bucket
from tests.benchmarks.zoo.world import Signals, World

_ANTHROPIC = AnthropicMessages()
_READ_AS = {"protocol": "openai", "ietf": "generic"}
_MINUTE_S = 60.0
_NOUNS: dict[Axis, str] = {"input": "input tokens", "output": "output tokens", "day": "requests"}
_PERIODS = ((86_400.0, "day", 1440), (3_600.0, "hour", 60), (0.0, "min", 1))
_UNBOUND = 10
"""The view "other" reports limits this many times as high as the one that binds."""


class Signs:
    """The headers of one provider. `Signals.view` decides which figures they report."""

    def __init__(self, world: World, admission: Admission, began_ms: int) -> None:
        self._signals, self._admission, self._began_ms = world.signals, admission, began_ms
        self._minutes: dict[Axis, Bucket] = {
            axis: Bucket(gate.per_minute, _MINUTE_S, 1.0, began_ms) for axis, gate in admission.gates.items()
        }
        self._shown: tuple[float, dict[Axis, Level]] | None = None

    def note_admitted(self, taken: Mapping[Axis, float], now_ms: int) -> None:
        """Charge an admitted call to the minute-long buckets that the view "minute" reports."""
        if self._signals.view == "minute":
            for axis, bucket in self._minutes.items():
                bucket.spend(taken[axis], now_ms)

    def of_success(self, now_ms: int) -> Hints | None:
        """The hints that a worker reads from a success."""
        if self._signals.view == "none" or not self._signals.on_success:
            return None
        return read_limits(self._read_as, self._limit_headers(now_ms), now_ms)

    def of_refusal(self, axis: Axis, wait_ms: float | None, now_ms: int) -> tuple[Hints | None, int | None]:
        """The hints that a worker reads from a refusal on ``axis``, and the wait they ask for."""
        signals = self._signals
        headers = {} if signals.view == "none" else self._limit_headers(now_ms)
        if signals.wait_form != "none" and wait_ms is not None:
            shown_ms = max(1, round(wait_ms * signals.wait_error))
            headers |= retry_after_headers((signals.wait_form,), shown_ms, now_ms)
        if signals.style != "anthropic":
            headers = rejection_headers(signals.style, axis, headers)
        asked_ms = retry_after_ms(headers, now_ms)
        error = ErrorBody((), self._sentence(axis))
        refusal = read_refusal(self._read_as, headers, error, asked_ms, now_ms)
        return refusal.hints, refusal.wait_ms

    def _sentence(self, axis: Axis) -> str | None:
        """A 429's message, as far as the world's name their limit."""
        names, world = self._signals.names, self._admission.world
        if names == "nothing":
            return None
        if axis == "concurrency":
            sized = f". Limit: {world.most_at_once} concurrent requests" if names == "limit" else ""
            return None if world.at_once_status == 503 else f"Too many concurrent requests{sized}"
        span_s = next((limit.span_s for limit in world.limits if limit.axis == axis), 0.0)
        period, minutes = next((name, minutes) for least_s, name, minutes in _PERIODS if span_s >= least_s)
        limit = int(self._admission.gates[axis].per_minute * minutes)
        sized = f": Limit {limit}" if names == "limit" else ""
        return f"Rate limit reached on {_NOUNS.get(axis, axis)} per {period}{sized}"

    @property
    def _read_as(self) -> str:
        return _READ_AS.get(self._signals.style, self._signals.style)

    def _limit_headers(self, now_ms: int) -> dict[str, str]:
        return _written(self._signals, self._levels(now_ms), now_ms)

    def _levels(self, now_ms: int) -> dict[Axis, Level]:
        signals = self._signals
        if signals.view == "stale":
            if self._shown is None or now_ms - self._shown[0] >= signals.stale_s * 1000:
                self._shown = (now_ms, self._true_levels(now_ms))
            return self._shown[1]
        if signals.view == "minute":
            return self._minute_levels(now_ms)
        if signals.view == "other":
            return self._other_levels(now_ms)
        return self._true_levels(now_ms)

    def _true_levels(self, now_ms: int) -> dict[Axis, Level]:
        self._admission.advance(now_ms)
        return {
            axis: Level(
                int(gate.per_minute), int(gate.remaining(now_ms)), max(1, round(gate.renewed_in_ms(now_ms)))
            )
            for axis, gate in self._admission.gates.items()
        }

    def _minute_levels(self, now_ms: int) -> dict[Axis, Level]:
        levels = {}
        for axis, bucket in self._minutes.items():
            left, full_ms = int(bucket.remaining(now_ms)), bucket.renewed_in_ms(now_ms)
            levels[axis] = Level(int(self._admission.gates[axis].per_minute), left, max(1, round(full_ms)))
        return levels

    def _other_levels(self, now_ms: int) -> dict[Axis, Level]:
        """Levels of the axes that have no limit: each allows ten times the calls that the limits allow."""
        gates = self._admission.gates
        work = self._admission.world.work
        mean = amounts(work.input_tokens, work.output_tokens, 1.0)
        calls = min((gate.per_minute / mean[axis] for axis, gate in gates.items()), default=1.0)
        free: tuple[Axis, ...] = ("requests", "tokens", "input", "output")
        plenty: dict[Axis, int] = {
            axis: max(2, round(_UNBOUND * calls * mean[axis])) for axis in free if axis not in gates
        }
        return {axis: Level(limit, limit - 1, 1) for axis, limit in plenty.items()}


def _written(signals: Signals, levels: Mapping[Axis, Level], now_ms: int) -> dict[str, str]:
    limited: dict[LimitedAxis, Level] = {axis: level for axis, level in levels.items() if axis != "unnamed"}
    match signals.style:
        case "anthropic":
            return _ANTHROPIC.limit_headers(limited, now_ms)
        case "protocol":
            return openai_limit_headers(limited)
        case "azure":
            return azure_limit_headers(limited)
        case style:
            return limit_headers(style, _ANTHROPIC, limited, now_ms)

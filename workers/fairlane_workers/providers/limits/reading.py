"""Turns an answer's headers, and an error's body, into hints and the wait that follows from them."""

from collections.abc import Mapping
from typing import NamedTuple

from fairlane.model.hints import Axis, AxisHint, Hints
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.retry_after import provider_now_ms, wait_in_words_ms
from fairlane_workers.providers.limits import bodies
from fairlane_workers.providers.limits.clocks import Axes, read_clocks
from fairlane_workers.providers.limits.prose import named_limit
from fairlane_workers.providers.limits.table import LimitDialect, dialect_in, tells_limits

_HOUR_MS = 3_600_000
_ROUNDED_MS = 2000
_ROUNDED_SHARE = 0.1
"""Retry-After and a reset that mean one time differ by no more than both of these together.

Both may be whole seconds, and a reset that is a time of day counts from a ``date`` that a busy server wrote
some seconds ago.
"""
_LONGEST_DAY_MS = 25 * _HOUR_MS
_ORDER: tuple[Axis, ...] = ("input", "output", "tokens", "requests", "unnamed", "day", "concurrency")


class Refusal(NamedTuple):
    """The content of a rejection by rate: hints, and how long to wait; ``None`` if unknown."""

    hints: Hints | None
    wait_ms: int | None


def read_limits(dialect: str | LimitDialect | None, headers: Mapping[str, str], now_ms: int) -> Hints | None:
    """The limits that an answer's headers report; ``None`` if they report none.

    ``dialect`` is a protocol's own, or a name of `dialect_of`: headers that prove another one take precedence
    over a name. ``headers`` have names in lower case; the answer's own ``date`` takes precedence over
    ``now_ms`` (epoch milliseconds). Never raises.
    """
    if not tells_limits(headers, dialect):
        return None
    axes = _axes(dialect_in(headers, dialect), headers, now_ms)
    return Hints(axes) if axes else None


def asked_wait_ms(wait_ms: int | None, hints: Hints | None) -> int | None:
    """The wait that an answer other than a rejection asks for; ``wait_ms`` is its Retry-After.

    ``None`` if Retry-After only repeats when a limit renews that is not used up: SlowAPI and
    Flask-Limiter send that with every answer.
    """
    axes = hints.axes.values() if hints else ()
    if wait_ms is None or any(_spent(hint) for hint in axes):
        return wait_ms
    resets = (hint.reset_ms for hint in axes if hint.remaining and hint.reset_ms is not None)
    apart_ms = _ROUNDED_MS + _ROUNDED_SHARE * wait_ms
    return None if any(abs(reset_ms - wait_ms) <= apart_ms for reset_ms in resets) else wait_ms


def wait_of_success_ms(wait_ms: int | None, hints: Hints | None) -> int | None:
    """The wait that a success asks for: its Retry-After, where a limit has nothing left, else none.

    Gateways and web servers send Retry-After with successes, as advice or by mistake. Headers that say how
    much is left bound the rate by themselves.
    """
    axes = hints.axes.values() if hints else ()
    return wait_ms if any(_spent(hint) for hint in axes) else None


def read_refusal(
    dialect: str | LimitDialect | None,
    headers: Mapping[str, str],
    body: ErrorBody,
    wait_ms: int | None,
    now_ms: int,
) -> Refusal:
    """The limits of an answer that *is* a rejection by rate, with the exhausted axis.

    ``wait_ms`` is Retry-After. The wait is at least that; if it is missing or 0, the reset of the exhausted
    axis, and of no other, replaces it. If nothing else gives a wait, the message may ask for one.
    """
    row, now_ms = dialect_in(headers, dialect), provider_now_ms(headers, now_ms)
    axes = _axes(row, headers, now_ms) if tells_limits(headers, dialect) else {}
    violated = bodies.violations(body.error, now_ms)
    axes.update(violated.axes)
    exhausted = violated.exhausted or _exhausted(axes, headers, body)
    if wait_ms is None:
        wait_ms = bodies.named_wait_ms(body.error, now_ms)
    hints = Hints(axes, exhausted)
    renewed_ms = _renewed_ms(exhausted, axes, row)
    if renewed_ms is not None and (not wait_ms or row.reset == "window" or violated.exhausted):
        wait_ms = max(wait_ms or 0, renewed_ms)
    if wait_ms is None:
        wait_ms = wait_in_words_ms(body.message, now_ms)
    return Refusal(hints or None, wait_ms)


def _axes(row: LimitDialect, headers: Mapping[str, str], now_ms: int) -> Axes:
    now_ms = provider_now_ms(headers, now_ms)
    axes = read_clocks(row.clocks, headers, now_ms)
    if row.amend is not None:
        row.amend(axes, headers, now_ms)
    return axes


def _exhausted(axes: Axes, headers: Mapping[str, str], body: ErrorBody) -> Axis | None:
    """The axis that the error names, else the one with nothing remaining whose renewal takes longest.

    Prose is read last. Only prose separates a day's tokens from a minute's if the type is just ``tokens``.
    Its limit is used if no header gives one.
    """
    prose = named_limit(body.message)
    axis = bodies.axis_of_type(headers.get("x-ratelimit-type")) or bodies.axis_of_kinds(body.kinds)
    axis = axis or _slowest_spent(axes)
    if prose is None:
        daily = axis == "requests" and axis not in axes and _spent(axes.get("day"))
        return "day" if daily else axis
    if axis is None or prose.axis == "day":
        axis = prose.axis
    known = axes.get(axis, AxisHint())
    if prose.axis == axis and known.limit is None and prose.limit is not None:
        axes[axis] = known._replace(limit=prose.limit)
    return axis


def _slowest_spent(axes: Axes) -> Axis | None:
    spent: list[Axis] = [axis for axis in _ORDER if _spent(axes.get(axis))]
    return max(spent, key=lambda axis: axes[axis].reset_ms or 0, default=None)


def _spent(hint: AxisHint | None) -> bool:
    return hint is not None and hint.remaining == 0


def _renewed_ms(exhausted: Axis | None, axes: Axes, row: LimitDialect) -> int | None:
    """How long until the exhausted axis allows a call, if its reset is credible."""
    hint = axes.get(exhausted) if exhausted else None
    if hint is None or not hint.reset_ms:
        return None
    if exhausted != "day":
        return hint.reset_ms if hint.reset_ms <= _HOUR_MS else None
    if hint.remaining or hint.reset_ms > _LONGEST_DAY_MS:
        return None  # not the exhausted axis: a day's tokens besides a day's requests
    # A day's bucket that refills steadily has room for a call long before it is full.
    share = hint.limit if row.reset == "full" and hint.limit else 1
    return max(1, round(hint.reset_ms / share))

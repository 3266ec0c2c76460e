"""The state of a lane as commands and pages show it: limits and sources, calls in flight, what limits it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fairlane.model.lane import LaneLimits

STATED = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "input": "input_tokens_per_minute",
    "output": "output_tokens_per_minute",
    "day": "requests_per_day",
}
AXES = tuple(STATED)

FAILED = ("answered", "overloaded", "server_error", "broken", "refused")
"""Signals of calls that failed for another reason than a rate limit."""

SHUTS = frozenset(("paused", "parked", "probing", "held", "circuit", "blocked"))
"""Constraints that shut a lane. Those of the last request may have ended: `LaneView.shut` is of now."""

Source = Literal["configured", "headers", "probed", "starting"]
"""In this order: the operator; the provider's headers or bodies; 429s; slow start before the first 429."""


LaneState = Literal["active", "probing", "blocked", "parked", "paused"]
"""The states of docs/glossary.md."""


class AxisView(NamedTuple):
    """One axis of a lane. Rates are a minute's, on the axis ``day`` a day's; ``None``: there is none.

    ``allowed`` is the limit in force, from ``source``; ``learned`` is the one without the configuration.
    ``configured`` is the operator's limit, ``reported`` that of headers. ``probed`` is detected from 429s,
    with its standard deviation ``uncertainty``. The last two have their times. ``foreign``: what other
    clients of the key use. ``level``: what may start now (or at ``from_ms``), in requests or tokens;
    negative: a debt. ``full``: its maximum. A ``window`` or a day renews at ``renews_ms``. ``by_chance``: the
    share of calls that the provider rejects at any rate.
    """

    configured: float | None = None
    allowed: float | None = None
    learned: float | None = None
    source: Source | None = None
    reported: float | None = None
    reported_ms: int | None = None
    probed: float | None = None
    probed_ms: int | None = None
    uncertainty: float | None = None
    foreign: float = 0.0
    level: float | None = None
    full: float | None = None
    from_ms: int | None = None
    shape: Literal["bucket", "window", "unknown"] = "unknown"
    renews_ms: int | None = None
    by_chance: float = 0.0

    @property
    def source_in_words(self) -> str:
        """Where the limit in force comes from: "unlimited" if there is none, "probing" in slow start."""
        if self.allowed is None or self.source is None:
            return "unlimited"
        return "probing" if self.source == "starting" else self.source


class Places(NamedTuple):
    """The most calls in flight at once (``None``: only slots limit them), and the source.

    "search": the limit is unknown; the lane begins with few calls, and adds more while answers a second grow.
    """

    most: int | None = None
    source: Literal["configured", "headers", "refusals", "latency", "deadlines", "search"] | None = None


class LateCalls(NamedTuple):
    """Calls that a deadline of ``within_ms`` ended in a server's queue: ``ended`` is how many.

    They narrowed the window; ``in_flight`` calls were in flight then.
    """

    ended: int
    within_ms: int
    in_flight: int

    def __str__(self) -> str:
        calls = "call" if self.ended == 1 else "calls"
        within = f"{self.within_ms / 1000:,.3g} s"
        return f"{self.ended:,} {calls} got no answer within {within} while {self.in_flight:,} were in flight"


class HeldModels(NamedTuple):
    """The models that a lane's server holds, with the calls of each in flight, and until when others wait.

    ``until_ms`` is ``None`` if no job waits for another.
    """

    in_flight: Mapping[str, int]
    until_ms: int | None = None

    def __str__(self) -> str:
        return ", ".join(f"{name} ({count:,} in flight)" for name, count in self.in_flight.items())


class Hold(NamedTuple):
    """Why no call starts now, as `permit_grant` names it; and when that ends, if time alone ends it."""

    reason: str
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane at ``now_ms``. Times are server milliseconds; ``axes`` has every axis, by its name.

    ``reason``: what limited its jobs at the last request; ``shut``: what shuts the whole lane now.
    ``asked_to_wait``: the provider named the end of its block. ``ramp``: the share of its rate that the lane
    uses after an outage; ``latency_ms``: the recent latency. ``started_ms``: its last grant. ``pending``:
    calls in flight that hold no worker's slot. No call was answered since ``down_since_ms``; ``last_error``
    is the latest failure in the provider's words. A held lane waits until ``held_until_ms``, which its
    provider named (``held_named``) or which is the end of its quota. ``models``: those that its server holds,
    if it holds few; ``late``: calls that have narrowed its window.
    """

    lane: str
    limits: LaneLimits
    axes: Mapping[str, AxisView]
    places: Places
    in_flight: int
    granted: int
    succeeded: int
    limited: int
    failed: int
    returned: int
    reason: str
    shut: Hold | None
    blocked_until_ms: int | None
    asked_to_wait: bool
    circuit: str
    parked: str | None
    paused: bool
    ramp: float
    latency_ms: float | None
    started_ms: int | None
    now_ms: int
    pending: int = 0
    down_since_ms: int | None = None
    last_error: str | None = None
    last_error_ms: int | None = None
    held_until_ms: int | None = None
    held_named: bool = False
    models: HeldModels | None = None
    late: LateCalls | None = None

    @property
    def failed_share(self) -> float:
        """The share of ended calls that failed for another reason than a rate limit, 0 to 1."""
        ended = self.succeeded + self.failed + self.limited
        return self.failed / ended if ended else 0.0

    @property
    def state(self) -> LaneState:
        """The state of the lane, as every table, page and document shows it."""
        if self.paused:
            return "paused"
        if self.parked is not None:
            return "parked"
        if self.shut is not None:
            return "blocked"
        return "probing" if self.axes["requests"].source == "starting" else "active"

    @property
    def learned_per_minute(self) -> float | None:
        """The learned rate of requests, also by slow start; ``None`` if nothing is learned."""
        return self.axes["requests"].learned

    @property
    def shared(self) -> bool:
        """Whether other clients of the same key were detected."""
        return any(axis.foreign > 0 for axis in self.axes.values())

    def hold(self, queued: int) -> Hold | None:
        """What keeps queued jobs from starting; ``None`` if nothing does, or none are queued."""
        if self.shut is not None or not queued:
            return self.shut
        if not self.reason or self.reason in SHUTS:
            return None
        return Hold(self.reason, self.axes["day"].renews_ms if self.reason == "day" else None)


def read_view(
    lane: str, state: Mapping[str, str], stored: Mapping[str, str], view: Mapping[str, Any], now_ms: int
) -> LaneView:
    """A lane from its hashes ``lane:<lane>:state`` and ``:limits``, and the view of ``lane_view.lua``."""

    def count(name: str) -> int:
        return int(float(state.get(name, 0)))

    limits, until_ms = read_limits(stored), _future(view.get("until_ms"), now_ms)
    return LaneView(
        lane=lane,
        limits=limits,
        axes={axis: _axis(axis, state, limits, view["axes"][axis], now_ms) for axis in AXES},
        places=_places(state, limits, view.get("concurrency")),
        in_flight=count("inflight"),
        pending=count("pending"),
        held_until_ms=_whole(_number(state, "held_until_ms")),
        held_named=state.get("held_named") == "1",
        models=read_models(state, limits),
        late=_late(state),
        granted=count("granted"),
        succeeded=count("seen_ok"),
        limited=count("seen_limited"),
        failed=sum(count(f"seen_{signal}") for signal in FAILED),
        returned=count("seen_unsent"),
        reason=state.get("stop", ""),
        shut=Hold(view["reason"], until_ms) if "reason" in view else None,
        blocked_until_ms=_future(_number(state, "blocked_ms"), now_ms),
        asked_to_wait=bool(state.get("again_ms")) and state.get("again_ms") == state.get("blocked_ms"),
        circuit=state.get("circuit", "closed"),
        parked=state["parked"].rstrip(".") if "parked" in state else None,  # callers put it into a sentence
        paused=state.get("paused") == "1",
        ramp=float(view["ramp"]),
        latency_ms=view.get("latency_ms"),
        started_ms=_whole(_number(state, "started_ms")),
        down_since_ms=_whole(_number(state, "down_ms")),
        last_error=state.get("last_error"),
        last_error_ms=_whole(_number(state, "last_error_ms")),
        now_ms=now_ms,
    )


def read_models(state: Mapping[str, str], limits: LaneLimits) -> HeldModels | None:
    """The held models, as `lib/models/models.lua` keeps them; ``None`` if the lane calls any number."""
    if limits.models_at_once is None:
        return None
    names = [str(model["name"]) for model in json.loads(state.get("models") or "[]")]
    since_ms = _whole(_number(state, "model_waits_ms"))
    until_ms = None if since_ms is None else since_ms + round(1000 * limits.model_seconds)
    return HeldModels({name: int(float(state.get(f"calls:{name}", 0))) for name in names}, until_ms)


def _late(state: Mapping[str, str]) -> LateCalls | None:
    """``None`` if no deadline narrows the window (``lib/concurrency/late.lua``)."""
    ended, within_ms, crowd = (_number(state, f"late_{name}") for name in ("calls", "ms", "crowd"))
    if not state.get("window") or state.get("window_by") != "deadline":
        return None
    if ended is None or within_ms is None or crowd is None:  # an earlier version narrowed it
        return None
    return LateCalls(int(ended), int(within_ms), int(crowd))


def read_limits(stored: Mapping[str, str]) -> LaneLimits:
    """Limits as `stored_limit` has written them; fields of other versions are ignored."""
    fields: dict[str, float | str] = {
        name: value for name, value in stored.items() if name in LaneLimits.model_fields
    }
    if "burst_ms" in stored:
        fields["burst_seconds"] = float(stored["burst_ms"]) / 1000
    return LaneLimits.model_validate({name: _at_most(name, value) for name, value in fields.items()})


def _at_most(name: str, value: float | str) -> float | str:
    """A stored limit, at most what `LaneLimits` allows: an earlier version stored greater numbers."""
    bounds = (getattr(each, "le", None) for each in LaneLimits.model_fields[name].metadata)
    most = next((bound for bound in bounds if bound is not None), None)
    return value if most is None or float(value) <= most else most


def stored_limit(name: str, value: float | bool | str) -> tuple[str, str]:
    """A limit's field and value in Redis: numbers as they are, yes as 1, no as 0, a burst in milliseconds."""
    if name == "burst_seconds":
        return "burst_ms", str(round(float(value) * 1000))
    return name, str(int(value) if isinstance(value, bool) else value)


def _axis(
    axis: str, state: Mapping[str, str], limits: LaneLimits, view: Mapping[str, Any], now_ms: int
) -> AxisView:
    probed = _number(state, f"{axis}_est") if state.get(f"{axis}_age_ms") else None
    variance = _number(state, f"{axis}_var")
    return AxisView(
        configured=getattr(limits, STATED[axis]),
        allowed=view.get("allowed"),
        learned=view.get("learned"),
        source=view.get("source"),
        reported=_number(state, "day_rate" if axis == "day" else f"{axis}_reported"),
        reported_ms=_whole(_number(state, f"{axis}_reported_ms")),
        probed=probed,
        probed_ms=None if probed is None else _whole(_number(state, f"{axis}_est_ms")),
        uncertainty=None if probed is None or variance is None else variance**0.5,
        foreign=view.get("others", 0.0),
        level=view.get("level"),
        full=view.get("full"),
        from_ms=_future(view.get("from_ms"), now_ms),
        shape=view["shape"],
        renews_ms=_whole(view.get("renews_ms")),
        by_chance=(_number(state, "chance") or 0.0) if axis == "requests" else 0.0,
    )


def _places(state: Mapping[str, str], limits: LaneLimits, most: float | None) -> Places:
    if most is None:
        return Places()
    if limits.max_concurrency == most:
        return Places(int(most), "configured")
    if _number(state, "concurrency_reported") == most:
        return Places(int(most), "headers")
    if _number(state, "window") == most:
        return Places(int(most), "deadlines" if state.get("window_by") == "deadline" else "refusals")
    return Places(int(most), "latency" if state.get("search_by") == "latency" else "search")


def _number(state: Mapping[str, str], name: str) -> float | None:
    """A field's number; ``None`` if it is absent or empty."""
    text = state.get(name)
    return float(text) if text else None


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _future(at_ms: float | None, now_ms: int) -> int | None:
    """The time as an integer, if it is in the future; else ``None``."""
    return int(at_ms) if at_ms is not None and at_ms > now_ms else None

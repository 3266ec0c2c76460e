"""Reads lanes for their pages: each lane's limits and their sources, its activity, and what limits it."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from fairlane.cli.output import fields_of
from fairlane.client.deployment import Deployment
from fairlane.flower.readings.error_words import errors_of
from fairlane.store.write.lanes.lane_history import FINE, MINUTES, RecentCalls, Sample, Step
from fairlane.store.write.lanes.lane_view import AxisView, LaneView
from fairlane.why.reasons import SOURCES, UNITS, rate_in_words, reason_of

SPANS: Mapping[str, Step] = {"fine": FINE, "minutes": MINUTES}
QUIET_STEPS = 2
"""After so many steps without a sample, the chart continues to now with zeros."""


class LaneBoard:
    """Reads lanes. What it returns is ready for JSON; times are server milliseconds."""

    def __init__(self, deployment: Deployment, *, show_text: bool) -> None:
        self._deployment, self._show_text = deployment, show_text

    def all(self) -> dict[str, Any]:
        """Every lane as a row."""
        return self._read(self._deployment.lanes.names())

    def one(self, lane: str, span: str) -> dict[str, Any]:
        """One lane in full, with its chart over a ``span`` of `SPANS`. Raises `LaneNotFound`."""
        view = self._deployment.lanes.view(lane, self._deployment.script_time())
        step = SPANS[span]
        samples = self._deployment.history.of(lane, view.now_ms - step.span_ms, step)
        row: dict[str, Any] = self._read([lane])["lanes"][0]
        return row | {
            "axes": [
                {"axis": name, "unit": UNITS[name], **_axis(name, axis)} for name, axis in view.axes.items()
            ],
            **fields_of(view, "granted", "succeeded", "failed", "ramp", "latency_ms", "started_ms", "now_ms"),
            "rate_limits": view.limited,
            "shared_with_others": view.shared,
            "chart": chart(samples, view.now_ms, step),
        }

    def _read(self, lanes: Sequence[str]) -> dict[str, Any]:
        here = self._deployment
        views = here.lanes.views(lanes, here.script_time())
        now_ms = views[0].now_ms if views else here.now_ms()
        waiting, led = here.reader.queued_by_team(), here.is_led(now_ms)
        lately = here.history.lately(lanes, now_ms)
        slots = dict.fromkeys(lanes, 0)
        for beat in here.beats():
            if beat.info.stopping:
                continue
            for lane in slots.keys() & set(beat.info.lanes):
                slots[lane] += beat.info.slots
        rows = [
            _row(view, waiting.get(view.lane, {}), lately[view.lane], slots[view.lane], led=led)
            | {"last_error": self._last_error(view)}
            for view in views
        ]
        return {"now_ms": now_ms, "led": led, "lanes": rows}

    def _last_error(self, view: LaneView) -> str | None:
        """The last error; a provider's message may quote a prompt."""
        if view.last_error is None:
            return None
        return errors_of([view.lane], show_text=self._show_text)(view.last_error)


def chart(samples: Sequence[Sample], now_ms: int, step: Step) -> dict[str, Sequence[float | None]]:
    """Columns of a chart: times in seconds, calls a minute by result, the limit, and counts. The first sample
    has no predecessor, so its rates are unknown.
    """
    if samples and now_ms - samples[-1].at_ms > QUIET_STEPS * step.every_ms:
        samples = [*samples, samples[-1]._replace(at_ms=now_ms, admitted=0, refused=0)]
    return {
        "at": [each.at_ms / 1000 for each in samples],
        "limit": [each.limit_per_minute for each in samples],
        "admitted": _per_minute(samples, [each.admitted for each in samples]),
        "refused": _per_minute(samples, [each.refused for each in samples]),
        "in_flight": [each.in_flight for each in samples],
        "waiting": [each.waiting for each in samples],
    }


def _per_minute(samples: Sequence[Sample], counts: Sequence[int]) -> list[float | None]:
    """The counts, each since the sample before, as rates."""
    rates: list[float | None] = [None] * len(counts)
    for at, (before, now) in enumerate(pairwise(samples), start=1):
        minutes = (now.at_ms - before.at_ms) / 60_000
        rates[at] = round(counts[at] / minutes, 2) if minutes else None
    return rates


def _row(
    view: LaneView, waiting: Mapping[str, int], lately: RecentCalls, slots: int, *, led: bool
) -> dict[str, Any]:
    requests, queued = view.axes["requests"], sum(waiting.values())
    reason = reason_of(view, queued, slots, led=led)
    return {
        **fields_of(view, "lane", "in_flight", "failed_share", "last_error_ms", "state", "blocked_until_ms"),
        "allowed_per_minute": requests.allowed,
        "source": _source(requests),
        "used_per_minute": lately.used_per_minute,
        "window": view.places.most,
        "window_source": SOURCES[view.places.source] if view.places.source else None,
        "slots": slots,
        "waiting": {team: count for team, count in sorted(waiting.items()) if count},
        "rejected_share": lately.refused_share,
        "circuit": view.circuit.replace("_", " "),
        "constraint": reason.constraint if reason else None,
        "constraint_sentence": reason.sentence if reason else None,
        "constraint_until_ms": reason.until_ms if reason else None,
    }


def _source(axis: AxisView) -> str:
    if axis.allowed is None:
        return "unlimited"
    return SOURCES[axis.source] if axis.source else ""


def _axis(name: str, axis: AxisView) -> dict[str, Any]:
    return {
        "words": rate_in_words(name, axis),
        **fields_of(axis, "configured", "allowed", "reported", "probed", "uncertainty"),
        "left": axis.level,
        **fields_of(axis, "shape", "renews_ms"),
    }

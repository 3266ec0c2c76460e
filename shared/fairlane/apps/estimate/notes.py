"""What a forecast's numbers leave out, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fairlane.client.views.forecast import Forecast, LaneForecast
from fairlane.model.run import RunSpec
from fairlane.store.write.lanes.lane_view import LaneView


def notes_on(forecast: Forecast, spec: RunSpec, views: Mapping[str, LaneView], slots: int) -> tuple[str, ...]:
    """Sentences, those about the whole run first."""
    return (*_of_run(forecast, spec, slots), *_of_lanes(forecast.lanes, views))


def _of_run(forecast: Forecast, spec: RunSpec, slots: int) -> Iterator[str]:
    bounds, tokens, cost = spec.bounds, forecast.tokens, forecast.cost_usd
    if not slots:
        yield "no worker is up: the time assumes that slots are no limit"
    if forecast.invalid:
        yield f"about {forecast.invalid:,} of {forecast.items:,} items cannot be rendered"
    if spec.cache.reads:
        yield "answers that are in the cache already are counted as calls"
    if spec.continues is not None:
        yield f"what run {spec.continues.run} has done already is counted as calls"
    if bounds.max_duration is not None and (forecast.seconds or 0) > bounds.max_duration:
        yield f"its max_duration of {bounds.max_duration:g} s ends it before it is done"
    if bounds.budget_tokens is not None and tokens > bounds.budget_tokens:
        yield f"its budget_tokens of {bounds.budget_tokens:,} may stop it before it is done"
    if bounds.budget_usd is not None and cost is not None and cost > bounds.budget_usd:
        yield f"its budget_usd of {bounds.budget_usd:g} may stop it before it is done"


def _of_lanes(lanes: tuple[LaneForecast, ...], views: Mapping[str, LaneView]) -> Iterator[str]:
    for lane in lanes:
        view = views[lane.lane]
        if view.paused:
            yield f"{lane.lane} is paused by an operator"
        elif view.parked is not None:
            yield f"{lane.lane} is parked: {view.parked}"
        elif lane.limited_by is None:
            yield f"{lane.lane}: nothing limits it, and it is unknown how long a call takes"
        elif lane.source == "starting":
            allowed = view.axes["requests"].allowed or 0.0
            yield (
                f"{lane.lane}: nothing has limited it yet; the time assumes {allowed:,.0f} requests a "
                "minute, where it is now, and it becomes faster"
            )
        if lane.queued:
            yield f"{lane.lane}: {lane.queued:,} calls of other runs wait there already"

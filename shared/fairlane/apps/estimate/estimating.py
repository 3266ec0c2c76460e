"""Estimates a run from the calls of a sample, the current limits of its lanes, and prices. Notes say what the
numbers leave out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairlane.apps.estimate.counting import Counting, Tally, Use
from fairlane.apps.estimate.sampling import Sample, take_sample
from fairlane.client.deployment import Deployment
from fairlane.client.views.forecast import Forecast, LaneForecast, Limit, ModelForecast
from fairlane.core.figures import counted, dollars
from fairlane.model.run import Plan, RunSpec, most_chars
from fairlane.model.tokens import Price, Usage, cost_usd, price_of
from fairlane.pipeline.rendering import Rendering
from fairlane.store.connection.connect import if_allowed
from fairlane.store.write.lanes.lane_view import LaneView
from fairlane.why.queues import DAY_MS, MINUTE_MS, Cost, Queues, start_of

MANY_SLOTS = 1_000_000
"""Slots to assume while no worker is up: they limit nothing."""


def estimate_rows(
    deployment: Deployment,
    spec: RunSpec,
    rows: Iterable[Mapping[str, Any]],
    *,
    count: int | None = None,
    answer_tokens: int | None = None,
) -> Forecast:
    """`estimate` over rows that are read here; ``count`` is their number, if the caller knows it."""
    sample = take_sample(rows, count, spec.session_field, order=spec.order)
    return estimate(deployment, spec, sample, answer_tokens=answer_tokens)


def estimate(
    deployment: Deployment, spec: RunSpec, sample: Sample, *, answer_tokens: int | None = None
) -> Forecast:
    """Estimate a run of ``spec`` over the dataset of ``sample``; writes nothing. ``answer_tokens``: expected
    length of an answer, by default the longest that the parameters allow. Raises `TemplateError` where a
    template does not compile.
    """
    connections = deployment.settings.connections.items()
    tooled = tuple(name for name, each in connections if each.tooled)
    unstructured = tuple(name for name, each in connections if not (each.structured or each.tooled))
    responses = tuple(name for name, each in connections if each.takes_responses)
    row_bytes = deployment.settings.scheduler.limits.row_bytes
    plan = Plan(
        spec=spec,
        unstructured=unstructured,
        tooled=tooled,
        responses=responses,
        prompt_chars=most_chars(row_bytes),
        judged_chars=most_chars(row_bytes, deployment.settings.worker.max_response_bytes),
    )
    rendering = Rendering(plan)
    tally = Counting(rendering, sample, answer_tokens).count()
    lanes_by_model = deployment.directory()
    by_lane, by_model = defaultdict[str, Use](Use), defaultdict[str, Use](Use)
    for (model, stated), use in tally.uses.items():
        by_lane[lanes_by_model.lane_of(model, stated) or model] += use
        by_model[model] += use
    lanes, views, slots = _lanes(deployment, by_lane, spec.bounds.delay * 1000, spec.team)
    models = tuple(_model(model, use, deployment.settings.prices) for model, use in sorted(by_model.items()))
    seconds = _run_seconds(spec, tally, sample, lanes, views)
    forecast = Forecast(
        rows=sample.count,
        items=sample.count * spec.cells_per_row,
        sampled=tally.sampled,
        invalid=round(tally.invalid),
        tasks=round(tally.tasks),
        evaluations=round(tally.evaluations),
        lanes=lanes,
        models=models,
        seconds=seconds,
        notes=(),
    )
    return replace(forecast, notes=(*_run_notes(forecast, spec, slots), *_lane_notes(forecast.lanes, views)))


def _lanes(
    deployment: Deployment, uses: Mapping[str, Use], gap_ms: float, team: str
) -> tuple[tuple[LaneForecast, ...], dict[str, LaneView], int]:
    names = sorted(uses)
    views = dict(zip(names, deployment.lanes.views(names), strict=True))
    queues = Queues(deployment.redis, deployment.keys).on(names, team)
    queued = {lane: sum(each.queued for each in queues[lane]) for lane in names}
    beats = if_allowed(deployment.beats, None)
    infos = [beat.info for beat in beats or () if not beat.info.stopping]
    slots = MANY_SLOTS if beats is None else sum(info.slots for info in infos)
    # Workers serve a lane only once it is used.
    serving = {lane: sum(info.slots for info in infos if lane in info.lanes) or slots for lane in names}
    lanes = tuple(
        forecast_lane(views[lane], uses[lane], serving[lane], queued[lane], gap_ms) for lane in names
    )
    return lanes, views, slots


def _run_seconds(
    spec: RunSpec,
    tally: Tally,
    sample: Sample,
    lanes: Sequence[LaneForecast],
    views: Mapping[str, LaneView],
) -> float | None:
    """Seconds for the whole run: those of its slowest lane, tightest bound or longest conversation."""
    known = [lane.seconds for lane in lanes if lane.seconds is not None]
    if len(known) < len(lanes):
        return None
    bounds, one_by_one = spec.bounds, sum(call_seconds(views[lane.lane], lane.calls) for lane in lanes)
    if spec.order.serial:
        known.append(one_by_one)
    elif spec.order.turns and sample.count:
        share = 1.0 if spec.order.conversation_field is None else sample.longest / sample.count
        known.append(one_by_one * share / spec.cells_per_row)  # each cell has a conversation of its own
    if bounds.max_concurrent is not None:
        known.append(one_by_one / bounds.max_concurrent)
    for rate, calls in zip(spec.role_rates, (tally.tasks, tally.evaluations), strict=True):
        if rate is not None:
            known.append(calls / rate)
    return max(known, default=0.0)


def _model(model: str, use: Use, prices: Mapping[str, Price]) -> ModelForecast:
    price = price_of(model, prices)
    usage = Usage(round(use.input), round(use.output))
    return ModelForecast(
        model,
        round(use.calls),
        round(use.input),
        round(use.output),
        cost_usd(usage, price) if price is not None else None,
    )


def forecast_lane(view: LaneView, use: Use, slots: int, queued: int, gap_ms: float) -> LaneForecast:
    """Forecast ``use`` of a lane; ``slots`` are its workers', 0 where there is none yet."""
    factor = view.limits.output_factor
    cost = Cost(use.input / use.calls, use.output * factor / use.calls)
    bounds = _bounds(view, use.calls, cost, slots, max(gap_ms, view.limits.min_gap_ms))
    by = max(bounds.items(), key=lambda each: each[1])[0] if bounds else None
    seconds, source = None, None
    if by is not None:
        seconds = _seconds(view, use.calls, cost, slots, gap_ms)
        source = view.axes[by].source if by in view.axes else view.places.source if by == "places" else None
    return LaneForecast(
        lane=view.lane,
        calls=round(use.calls),
        input_tokens=round(use.input),
        output_tokens=round(use.output),
        seconds=seconds,
        limited_by=by,
        source=source,
        queued=queued,
    )


def call_seconds(view: LaneView, calls: float) -> float:
    """Seconds that so many calls take one after another; 0 where no latency is known."""
    return calls * (view.latency_ms or 0.0) / 1000


def _bounds(view: LaneView, calls: float, cost: Cost, slots: int, gap_ms: float) -> dict[Limit, float]:
    """Milliseconds that the calls take under each known limit alone, in steady state."""
    found: dict[Limit, float] = {}
    limits: tuple[Limit, ...] = ("requests", "tokens", "input", "output", "day")
    for name in limits:
        allowed = view.axes[name].allowed
        if allowed:
            found[name] = calls * cost.on(name) / allowed * (DAY_MS if name == "day" else MINUTE_MS)
    if view.latency_ms is not None and (view.places.most or slots):
        places, by = min((view.places.most or MANY_SLOTS, "places"), (slots or MANY_SLOTS, "slots"))
        found["places" if by == "places" else "slots"] = calls * view.latency_ms / places
    if gap_ms:
        found["gap"] = calls * gap_ms
    return found


def _seconds(view: LaneView, calls: float, cost: Cost, slots: int, gap_ms: float) -> float | None:
    if gap_ms > view.limits.min_gap_ms:
        view = replace(view, limits=view.limits.model_copy(update={"min_gap_ms": round(gap_ms)}))
    last = start_of(max(1, round(calls)), view, cost, slots or MANY_SLOTS)
    if last.at_ms is None:
        return None
    return (max(0, last.at_ms - view.now_ms) + (view.latency_ms or 0.0)) / 1000


def _run_notes(forecast: Forecast, spec: RunSpec, slots: int) -> Iterator[str]:
    bounds, tokens, cost = spec.bounds, forecast.tokens, forecast.cost_usd
    if not slots:
        yield "no worker is up: the time assumes that slots are no limit"
    if forecast.invalid:
        yield f"about {forecast.invalid:,} of {counted(forecast.items, 'item')} cannot be rendered"
    if spec.cache.reads:
        yield "answers that are in the cache already are counted as calls"
    if spec.continues is not None:
        yield f"what run {spec.continues.run} has done already is counted as calls"
    if bounds.max_duration is not None and (forecast.seconds or 0) > bounds.max_duration:
        yield f"its max_duration of {bounds.max_duration:g} s ends it before it is done"
    if bounds.budget_tokens is not None and tokens > bounds.budget_tokens:
        yield f"its budget_tokens of {bounds.budget_tokens:,} may stop it before it is done"
    if bounds.budget_usd is not None and cost is not None and cost > bounds.budget_usd:
        yield f"its budget_usd of {dollars(bounds.budget_usd)} may stop it before it is done"


def _lane_notes(lanes: tuple[LaneForecast, ...], views: Mapping[str, LaneView]) -> Iterator[str]:
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
            yield f"{lane.lane}: {counted(lane.queued, 'call')} of other runs waiting there already"

"""The true limits of a simulated provider at each time: a rehearsal is measured against them."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from fairlane.lab.rehearsal.scenario import mean_latency_ms
from fairlane.lab.rehearsal.virtual.simulated_provider import Arrival
from fairlane.lab.simulator.config import SimulatedModel

Span = tuple[float, float]


def closed_spans(model: SimulatedModel) -> list[Span]:
    """When the provider admits nothing, in seconds from the start."""
    return sorted((at, at + lasts) for at, lasts in (*model.outages, *model.burst_429))


def requests_at(model: SimulatedModel, at_s: float) -> float | None:
    """The limit at that time, in requests a minute; ``None``: not limited."""
    rate = model.requests_per_minute
    for change_s, changed in model.limit_changes:
        if at_s >= change_s:
            rate = changed
    return rate


def allowed_requests(model: SimulatedModel, begin_s: float, end_s: float) -> float | None:
    """How many requests the limit allows between two times, without outages; ``None``: not limited."""
    if model.requests_per_minute is None:
        return None
    cuts = [at for at, _ in model.limit_changes if begin_s < at < end_s]
    edges = [begin_s, *cuts, end_s]
    return sum(
        (requests_at(model, start) or 0.0) / 60 * open_seconds(model, start, end)
        for start, end in pairwise(edges)
    )


def burst_s(model: SimulatedModel) -> float:
    """How many seconds of its rate an unused limit allows at once."""
    match model.shape:
        case "bucket":
            return model.burst_seconds
        case "window" | "sliding":
            return model.window_seconds
        case "second":
            return 1.0


def open_seconds(model: SimulatedModel, begin_s: float, end_s: float) -> float:
    """Seconds between two times in which the provider admits calls."""
    closed, reached = 0.0, begin_s
    for start, end in closed_spans(model):
        start, end = max(start, reached), min(end, end_s)
        if end > start:
            closed, reached = closed + end - start, end
    return end_s - begin_s - closed


def rate_at(model: SimulatedModel, at_s: float, tokens_a_call: float) -> float:
    """Calls a minute that other users leave at that time, over all axes; infinite without a limit."""
    if any(start <= at_s < end for start, end in closed_spans(model)):
        return 0.0
    others = sum(rate for start, lasts, rate in model.foreign if start <= at_s < start + lasts)
    requests = requests_at(model, at_s)
    rates = [math.inf if requests is None else max(0.0, requests - others)]
    if model.tokens_per_minute is not None:
        left = model.tokens_per_minute - others * model.foreign_tokens
        rates.append(max(0.0, left) / max(1.0, tokens_a_call))
    if model.max_concurrency is not None:
        rates.append(model.max_concurrency * 60_000 / max(1.0, mean_latency_ms(model)))
    return min(rates)


def counted_tokens(model: SimulatedModel, admitted: Iterable[Arrival]) -> float:
    """Tokens that these calls used of the token limit, which may count an output token several times."""
    return sum(call.input_tokens + call.output_tokens * model.output_factor for call in admitted)


def turning_points(model: SimulatedModel, sheds: Sequence[tuple[float, int]]) -> list[tuple[float, str]]:
    """Times after which a controller has to find the limit again, and what happens then."""
    found = [(at, f"limit {rate:g}") for at, rate in model.limit_changes]
    found += [(at + lasts, "outage over") for at, lasts in model.outages]
    found += [(at + lasts, "429s over") for at, lasts in model.burst_429]
    found += [(at, f"{count} calls shed") for at, count in sheds]
    for at, lasts, _ in model.foreign:
        found += [(at, "others come"), (at + lasts, "others leave")]
    return sorted(found)

"""The true limits of a simulated provider at each time: a rehearsal is measured against them."""

from collections.abc import Iterable
from itertools import pairwise

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


def counted_tokens(model: SimulatedModel, admitted: Iterable[Arrival]) -> float:
    """Tokens that these calls used of the token limit, which may count an output token several times."""
    return sum(call.input_tokens + call.output_tokens * model.output_factor for call in admitted)

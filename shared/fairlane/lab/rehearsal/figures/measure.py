"""Computes the figures of a rehearsal: use of the limit, calls, rejections, tokens."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import BaseModel

from fairlane.lab.rehearsal.figures.true_limits import (
    allowed_requests,
    burst_s,
    counted_tokens,
    open_seconds,
    requests_at,
)
from fairlane.lab.rehearsal.recording import Lane, Recording
from fairlane.lab.rehearsal.virtual.simulated_provider import ADMITTED, OUTAGE, TURNED_AWAY, Arrival


class Numbers(BaseModel, frozen=True):
    """Figures, as JSON has them."""


class LaneMeasure(Numbers, frozen=True):
    """One lane after the warm-up. Shares are 0 to 1."""

    model: str
    utilisation: float | None  # used share of the limit, on the axis that was used most
    rejected_share: float
    calls: int
    admitted: int
    rejected: int


class Measure(Numbers, frozen=True):
    """A whole rehearsal."""

    scenario: str
    workers: int
    seed: int
    complete: bool
    duration_s: float
    calls: int
    succeeded: int
    rejected: int
    input_tokens: int
    output_tokens: int
    lanes: tuple[LaneMeasure, ...]


class Counted(NamedTuple):
    """What counts of a lane: milliseconds after the warm-up, and the calls that arrived between them."""

    begin_ms: int
    end_ms: int
    seen: Sequence[Arrival]


def measure(recording: Recording) -> Measure:
    """The figures of a whole rehearsal. A model's lane is the limit that the provider has for it."""
    scenario = recording.scenario
    arrivals = [arrival for lane in recording.lanes.values() for arrival in lane.log.arrivals]
    paid = [arrival for arrival in arrivals if arrival.verdict == ADMITTED]
    return Measure(
        scenario=scenario.name,
        workers=scenario.workers,
        seed=scenario.seed,
        complete=recording.complete,
        duration_s=(recording.ended_ms - recording.began_ms) / 1000,
        calls=len(arrivals),
        succeeded=sum(lane.log.succeeded for lane in recording.lanes.values()),
        rejected=sum(_is_refusal(a) for a in arrivals)
        + sum(len(x.log.sheds) for x in recording.lanes.values()),
        input_tokens=sum(arrival.input_tokens for arrival in paid),
        output_tokens=sum(arrival.output_tokens for arrival in paid),
        lanes=tuple(_measure_lane(recording, lane) for lane in recording.lanes.values()),
    )


def counted(recording: Recording, lane: Lane) -> Counted:
    """What counts of a lane."""
    begin_ms = recording.began_ms + round(recording.scenario.warm_up_minutes * 60_000)
    end_ms = recording.ended_ms
    if recording.complete and lane.log.arrivals:
        end_ms = lane.log.arrivals[-1].at_ms + 1
    return Counted(begin_ms, end_ms, [each for each in lane.log.arrivals if begin_ms <= each.at_ms < end_ms])


def _measure_lane(recording: Recording, lane: Lane) -> LaneMeasure:
    begin_ms, end_ms, seen = counted(recording, lane)
    shed = sum(begin_ms <= at_ms < end_ms for at_ms in lane.log.sheds)
    rejected = sum(_is_refusal(arrival) for arrival in seen) + shed
    return LaneMeasure(
        model=lane.model,
        utilisation=_utilisation(recording, lane, seen, begin_ms, end_ms),
        rejected_share=rejected / len(seen) if seen else 0.0,
        calls=len(seen),
        admitted=Counter(arrival.verdict for arrival in seen)[ADMITTED],
        rejected=rejected,
    )


def _is_refusal(arrival: Arrival) -> bool:
    return arrival.verdict not in (ADMITTED, OUTAGE, TURNED_AWAY)


def _utilisation(
    recording: Recording, lane: Lane, seen: Sequence[Arrival], begin_ms: int, end_ms: int
) -> float | None:
    """The used share of the axis that was used most, without what other users took."""
    model = recording.scenario.models[lane.model]
    begin_s, end_s = (begin_ms - recording.began_ms) / 1000, (end_ms - recording.began_ms) / 1000
    if end_s <= begin_s:
        return None
    ours = [arrival for arrival in seen if arrival.verdict == ADMITTED]
    others = _foreign_at(lane, end_ms) - _foreign_at(lane, begin_ms)
    unused_s = burst_s(model) if begin_s == 0 else 0.0
    shares = []
    requests = allowed_requests(model, begin_s, end_s)
    if requests is not None and requests > others:
        at_once = (requests_at(model, 0) or 0.0) / 60 * unused_s
        shares.append(len(ours) / (requests + max(at_once, 1.0 if unused_s else 0.0) - others))
    if model.tokens_per_minute is not None:
        allowed = model.tokens_per_minute / 60 * (open_seconds(model, begin_s, end_s) + unused_s)
        allowed -= others * model.foreign_tokens
        shares.append(counted_tokens(model, ours) / allowed if allowed > 0 else 0.0)
    if model.max_concurrency is not None:
        busy_ms = sum(max(0, min(end, end_ms) - max(start, begin_ms)) for start, end in lane.log.served)
        shares.append(busy_ms / 1000 / (model.max_concurrency * open_seconds(model, begin_s, end_s) or 1.0))
    return max(shares, default=None)


def _foreign_at(lane: Lane, at_ms: int) -> int:
    known = [admitted for sampled_ms, admitted in lane.foreign if sampled_ms <= at_ms]
    return known[-1] if known else 0

"""Computes the figures of a rehearsal: use of the limit, rejections, recoveries, fairness."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from fairlane.lab.rehearsal.figures.true_limits import (
    allowed_requests,
    burst_s,
    closed_spans,
    counted_tokens,
    open_seconds,
    rate_at,
    requests_at,
    turning_points,
)
from fairlane.lab.rehearsal.recording import Lane, Recording
from fairlane.lab.rehearsal.scenario import Bar, lane_of
from fairlane.lab.rehearsal.virtual.simulated_provider import ADMITTED, OUTAGE, TURNED_AWAY, Arrival

RATE_OVER_S = 10.0
NEAR = 0.05
STAYS_S = 30.0
CUT = "cut"


class _Numbers(BaseModel):
    model_config = ConfigDict(frozen=True)


class Recovery(_Numbers):
    """Seconds from a change until the lane uses its limit again; ``None``: not before the next change."""

    at_s: float
    what: str
    took_s: float | None


class LaneMeasure(_Numbers):
    """One lane after the warm-up. Shares are 0 to 1."""

    model: str
    utilisation: float | None  # used share of the limit, on the axis that was used most
    rejected_share: float
    calls: int
    admitted: int
    rejected: int
    calls_in_outages: int
    cuts: int
    fairness: float | None  # Jain's index of the teams' rates over 10 s, on average
    recoveries: tuple[Recovery, ...]
    most_in_flight: int
    last_pace: float | None


class Measure(_Numbers):
    """A whole rehearsal; ``meets_bar`` is ``None`` if the scenario sets none."""

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
    bar: Bar | None
    meets_bar: bool | None


def measure(recording: Recording) -> Measure:
    """Compute the figures of a recording."""
    scenario = recording.scenario
    lanes = tuple(_measure_lane(recording, lane) for lane in recording.lanes.values())
    arrivals = [arrival for lane in recording.lanes.values() for arrival in lane.log.arrivals]
    paid = [arrival for arrival in arrivals if arrival.verdict == ADMITTED]
    bar = scenario.bar
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
        lanes=lanes,
        bar=bar,
        meets_bar=None if bar is None else all(_meets(lane, bar) for lane in lanes),
    )


def _meets(lane: LaneMeasure, bar: Bar) -> bool:
    return (lane.utilisation or 0.0) >= bar.utilisation and lane.rejected_share <= bar.rejected


def _measure_lane(recording: Recording, lane: Lane) -> LaneMeasure:
    scenario, model = recording.scenario, recording.scenario.models[lane.model]
    begin_ms = recording.began_ms + round(scenario.warm_up_minutes * 60_000)
    end_ms = recording.ended_ms
    if recording.complete and lane.log.arrivals:
        end_ms = lane.log.arrivals[-1].at_ms + 1
    seen = [arrival for arrival in lane.log.arrivals if begin_ms <= arrival.at_ms < end_ms]
    verdicts = Counter(arrival.verdict for arrival in seen)
    shed = sum(begin_ms <= at_ms < end_ms for at_ms in lane.log.sheds)
    rejected = sum(_is_refusal(arrival) for arrival in seen) + shed
    points = turning_points(model, scenario.sheds)
    return LaneMeasure(
        model=lane.model,
        utilisation=_utilisation(recording, lane, seen, begin_ms, end_ms),
        rejected_share=rejected / len(seen) if seen else 0.0,
        calls=len(seen),
        admitted=verdicts[ADMITTED],
        rejected=rejected,
        calls_in_outages=verdicts[OUTAGE],
        cuts=sum(news == CUT and begin_ms <= at_ms < end_ms for at_ms, news in lane.news),
        fairness=_fairness(recording, lane, seen, begin_ms, end_ms),
        recoveries=tuple(_recovery(recording, lane, *point) for point in points),
        most_in_flight=lane.peak,
        last_pace=lane.paces[-1][1] if lane.paces else None,
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


def _fairness(
    recording: Recording, lane: Lane, seen: Sequence[Arrival], begin_ms: int, end_ms: int
) -> float | None:
    """Jain, Chiu, Hawe, "A Quantitative Measure of Fairness" (1984): 1 is equal, 1/n is all to one."""
    scenario = recording.scenario
    teams = sorted({load.team for load in scenario.loads if lane_of(load.model) == lane_of(lane.model)})
    if len(teams) < 2:
        return None
    span_ms = round(RATE_OVER_S * 1000)
    windows: dict[int, Counter[str]] = {}
    for arrival in seen:
        if arrival.verdict == ADMITTED:
            windows.setdefault((arrival.at_ms - begin_ms) // span_ms, Counter())[arrival.team] += 1
    whole = (end_ms - begin_ms) // span_ms
    indices = []
    for number, counts in windows.items():
        shares = [counts[team] / scenario.teams.get(team, 1.0) for team in teams]
        if number < whole:
            indices.append(sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)))
    return fmean(indices) if indices else None


def _recovery(recording: Recording, lane: Lane, at_s: float, what: str) -> Recovery:
    """When the rate over 10 s, or over the limit's window, reaches the limit's neighbourhood for 30 s."""
    model = recording.scenario.models[lane.model]
    admitted = [arrival for arrival in lane.log.arrivals if arrival.verdict == ADMITTED]
    tokens = counted_tokens(model, admitted) / max(1, len(admitted))
    later = [point for point, _ in turning_points(model, recording.scenario.sheds) if point > at_s]
    later += [start for start, _ in closed_spans(model) if start > at_s]
    until_s = min([*later, (recording.ended_ms - recording.began_ms) / 1000])
    over_s = model.window_seconds if model.shape == "window" else RATE_OVER_S
    times = [arrival.at_ms - recording.began_ms for arrival in admitted]
    near_since: float | None = None
    moment = at_s + over_s
    while moment <= until_s:
        count = bisect_left(times, moment * 1000) - bisect_left(times, (moment - over_s) * 1000)
        wanted = rate_at(model, at_s, tokens)
        if abs(count * 60 / over_s - wanted) > max(NEAR * wanted, 60 / over_s):
            near_since = None
        elif near_since is None:
            near_since = moment - over_s
        if near_since is not None and moment - over_s - near_since >= STAYS_S:
            return Recovery(at_s=at_s, what=what, took_s=near_since - at_s)
        moment += 1.0
    return Recovery(at_s=at_s, what=what, took_s=None)

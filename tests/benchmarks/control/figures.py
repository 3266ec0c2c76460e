"""The figures that the catalogue adds: cuts, recoveries, fairness of teams, and whether a bar is met."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from fairlane.lab.rehearsal.figures.measure import LaneMeasure, Measure, Numbers, counted, measure
from fairlane.lab.rehearsal.figures.true_limits import closed_spans, counted_tokens, requests_at
from fairlane.lab.rehearsal.recording import Lane, Recording
from fairlane.lab.rehearsal.scenario import Scenario, lane_of, mean_latency_ms
from fairlane.lab.rehearsal.virtual.simulated_provider import ADMITTED, OUTAGE, Arrival
from fairlane.lab.simulator.config import SimulatedModel

RATE_OVER_S = 10.0
NEAR = 0.05
STAYS_S = 30.0
CUT = "cut"


class Bar(BaseModel):
    """What a lane has to reach."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    utilisation: float = Field(ge=0, le=10)
    rejected: float = Field(ge=0, le=1)


class Trial(Scenario):
    """A scenario of the catalogue: what it is about, and what its lanes have to reach."""

    about: str = ""
    bar: Bar | None = None


class Recovery(Numbers, frozen=True):
    """Seconds from a change until the lane uses its limit again; ``None``: not before the next change."""

    at_s: float
    what: str
    took_s: float | None


class LaneFigures(LaneMeasure, frozen=True):
    """One lane after the warm-up. Shares are 0 to 1."""

    calls_in_outages: int
    cuts: int
    fairness: float | None  # Jain's index of the teams' rates over 10 s, on average
    recoveries: tuple[Recovery, ...]
    most_in_flight: int
    last_pace: float | None

    @classmethod
    def of(cls, found: LaneMeasure, recording: Recording, lane: Lane) -> Self:
        """The figures of a lane whose measure is ``found``."""
        begin_ms, end_ms, seen = counted(recording, lane)
        points = turning_points(recording.scenario.models[lane.model], recording.scenario.sheds)
        return cls(
            **found.model_dump(),
            calls_in_outages=sum(arrival.verdict == OUTAGE for arrival in seen),
            cuts=sum(news == CUT and begin_ms <= at_ms < end_ms for at_ms, news in lane.news),
            fairness=_fairness(recording, lane, seen, begin_ms, end_ms),
            recoveries=tuple(_recovery(recording, lane, *point) for point in points),
            most_in_flight=lane.peak,
            last_pace=lane.paces[-1][1] if lane.paces else None,
        )


class Figures(Measure, frozen=True):
    """A whole rehearsal; ``meets_bar`` is ``None`` if the scenario sets none."""

    lanes: tuple[LaneFigures, ...]
    bar: Bar | None
    meets_bar: bool | None


def figures(recording: Recording) -> Figures:
    """The figures of a recording."""
    found, bar = measure(recording), getattr(recording.scenario, "bar", None)
    lanes = tuple(
        LaneFigures.of(each, recording, lane)
        for each, lane in zip(found.lanes, recording.lanes.values(), strict=True)
    )
    met = None if bar is None else all(_meets(lane, bar) for lane in lanes)
    return Figures(**found.model_dump(exclude={"lanes"}), lanes=lanes, bar=bar, meets_bar=met)


def _meets(lane: LaneMeasure, bar: Bar) -> bool:
    return (lane.utilisation or 0.0) >= bar.utilisation and lane.rejected_share <= bar.rejected


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


def turning_points(model: SimulatedModel, sheds: Sequence[tuple[float, int]]) -> list[tuple[float, str]]:
    """Times after which a controller has to find the limit again, and what happens then."""
    found = [(at, f"limit {rate:g}") for at, rate in model.limit_changes]
    found += [(at + lasts, "outage over") for at, lasts in model.outages]
    found += [(at + lasts, "429s over") for at, lasts in model.burst_429]
    found += [(at, f"{count} calls shed") for at, count in sheds]
    for at, lasts, _ in model.foreign:
        found += [(at, "others come"), (at + lasts, "others leave")]
    return sorted(found)

"""Numbers of a rehearsal, from courses that are written down by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.lab.rehearsal.recording import Lane, Recording
from fairlane.lab.rehearsal.scenario import Load
from fairlane.lab.rehearsal.virtual.simulated_provider import ADMITTED, Arrival, ProviderLog
from fairlane.lab.simulator.config import SimulatedModel
from tests.benchmarks.control.figures import Bar, Figures, Trial, figures


def every(
    gap_ms: int, start_s: float, end_s: float, verdict: str = ADMITTED, team: str = "a"
) -> list[Arrival]:
    times = range(round(start_s * 1000), round(end_s * 1000), gap_ms)
    return [Arrival(at_ms, team, verdict, 100, 50) for at_ms in times]


def measured(arrivals: list[Arrival], limits: dict[str, Any], **more: Any) -> Figures:
    """The measure of ten minutes, of which the first is not counted."""
    usual: dict[str, Any] = {
        "name": "test",
        "models": {"model": SimulatedModel.model_validate(limits)},
        "minutes": 10.0,
        "warm_up_minutes": 1.0,
    }
    foreign = more.pop("foreign_admitted", [])
    served = more.pop("served", [])
    lane = Lane("model", ProviderLog(sorted(arrivals), served), foreign=foreign)
    scenario = Trial.model_validate(usual | more)
    return figures(Recording(scenario, 0, 600_000, {"sim:model": lane}, complete=False))


def test_use_is_counted_after_the_warm_up() -> None:
    (lane,) = measured(every(200, 60, 600), {"requests_per_minute": 600}).lanes

    assert lane.utilisation == pytest.approx(0.5)
    assert lane.rejected_share == 0


def test_refusals_are_a_share_of_all_calls_and_exclude_outages() -> None:
    arrivals = every(1000, 60, 600) + every(4000, 60, 600, "requests") + every(5400, 60, 600, "outage")

    (lane,) = measured(arrivals, {"requests_per_minute": 60}).lanes

    assert (lane.admitted, lane.rejected, lane.calls_in_outages) == (540, 135, 100)
    assert lane.rejected_share == pytest.approx(135 / 775)


def test_use_by_others_and_outages_reduce_the_available_limit() -> None:
    limits = {"requests_per_minute": 60, "foreign": ((0, 600, 30),), "outages": ((300, 60),)}
    foreign = [(0, 0), (60_000, 30), (600_000, 270)]

    (lane,) = measured(every(2500, 60, 660), limits, foreign_admitted=foreign).lanes

    allowed = 540 - 60 - 240
    assert lane.utilisation == pytest.approx(216 / allowed)


def test_the_axis_that_is_used_most_counts() -> None:
    limits = {"requests_per_minute": 600, "tokens_per_minute": 18_000}

    (lane,) = measured(every(500, 60, 600), limits).lanes

    assert lane.utilisation == pytest.approx(1.0)


def test_an_output_token_uses_as_much_of_the_limit_as_the_provider_counts() -> None:
    (lane,) = measured(every(500, 60, 600), {"tokens_per_minute": 48_000, "output_factor": 2}).lanes

    assert lane.utilisation == pytest.approx(0.5)


def test_use_of_concurrency_counts_the_time_in_flight() -> None:
    served = [(0, 330_000), (330_000, 600_000)]

    (lane,) = measured(every(1000, 60, 600), {"max_concurrency": 2}, served=served).lanes

    assert lane.utilisation == pytest.approx(0.5)


def test_a_limit_is_found_again_once_the_rate_stays_near_it() -> None:
    limits = {"requests_per_minute": 600, "limit_changes": ((200, 300),)}
    course = every(100, 0, 200) + every(400, 200, 240) + every(200, 240, 600)

    (recovery,) = measured(course, limits).lanes[0].recoveries

    assert recovery.took_s is not None
    assert 35 <= recovery.took_s <= 42


def test_a_limit_that_is_never_found_again_has_no_time() -> None:
    limits = {"requests_per_minute": 600, "limit_changes": ((200, 300),)}

    (recovery,) = measured(every(100, 0, 200) + every(400, 200, 600), limits).lanes[0].recoveries

    assert recovery.took_s is None


def test_equal_teams_are_fair_and_one_alone_is_not() -> None:
    loads = (Load(team="a"), Load(team="b"))
    equal = every(1000, 60, 600) + every(1000, 60, 600, team="b")

    limits = {"requests_per_minute": 600}
    assert measured(equal, limits, loads=loads).lanes[0].fairness == pytest.approx(1.0)
    assert measured(every(1000, 60, 600), limits, loads=loads).lanes[0].fairness == pytest.approx(0.5)
    assert measured(equal, limits).lanes[0].fairness is None


def test_a_bar_is_met_by_use_and_refusals_together() -> None:
    bar, limits = Bar(utilisation=0.95, rejected=0.01), {"requests_per_minute": 60}
    used = every(1000, 60, 600)

    assert measured(used, limits, bar=bar).meets_bar is True
    assert measured(used + every(9000, 60, 600, "requests"), limits, bar=bar).meets_bar is False
    assert measured(used[::2], limits, bar=bar).meets_bar is False
    assert measured(used, limits).meets_bar is None

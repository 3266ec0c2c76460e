"""Teams share a lane by their weights while they compete, and a lone one has all of it."""

from __future__ import annotations

from fairlane.client.outputs import Run
from fairlane.core.events import Event
from fairlane.store.rejections import ENOUGH_REFUSALS
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.permits import (
    Permit,
    at_ms,
    furthest_ahead,
    granted,
    teams_of,
    while_all_wait,
)
from tests.support.wait import wait_until

JOBS = 90
BURST = 12  # permits that the lane may grant at once
UNANSWERED = 2 * ENOUGH_REFUSALS  # permits of two runs before any answer: as few for each, whatever its share
AHEAD = 1.5  # permits: a team may be granted the one that takes it past its share


def competing(deployment: Cluster, model: str, *teams: str) -> list[Run]:
    """A run of each team, all of them queued before the lane opens.

    What is scarce is the rate, and that is stated: on a busy machine the lane would take slow answers for a
    limit of concurrent calls, and teams would share those.
    """
    lane = f"sim:{model}"
    rate = {"requests_per_minute": 3600, "burst_seconds": 0.2, "max_concurrency": 2 * JOBS, "exact": True}
    deployment.lanes.limit(lane, rate)
    deployment.lanes.pause(lane)
    runs = [
        deployment.client_of(team).submit(numbered(JOBS), f"{team} {{{{ n }}}}", model=lane) for team in teams
    ]
    wait_until(lambda: all(run.status().lanes for run in runs))
    deployment.lanes.resume(lane)
    return runs


def served(deployment: Cluster, model: str, *runs: Run) -> list[Permit]:
    """The permits of the model's lane in order, once all of the runs are over."""
    for run in runs:
        all_succeeded(run)
    return granted(deployment, f"sim:{model}")


def test_teams_share_a_saturated_lane_by_weight(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=50)
    permits = while_all_wait(served(deployment, model, *competing(deployment, model, "small", "large")))
    assert teams_of(permits).count("large") >= JOBS
    assert furthest_ahead(permits, {"small": 1, "large": 3}, UNANSWERED) <= AHEAD


def test_teams_without_a_weight_share_alike(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=50)
    permits = while_all_wait(served(deployment, model, *competing(deployment, model, "one", "other")))
    assert len(permits) >= 2 * (JOBS - 3)
    assert furthest_ahead(permits, {"one": 1, "other": 1}) <= AHEAD


def test_a_team_that_comes_later_gets_its_share_at_once_and_no_more(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=50)
    (early,) = competing(deployment, model, "one")
    wait_until(lambda: early.status().jobs_done >= JOBS // 4)
    late = deployment.client_of("other").submit(numbered(JOBS), "late {{ n }}", model=f"sim:{model}")
    permits = while_all_wait(served(deployment, model, early, late))
    queued_ms = [at_ms(line) for line in deployment.logged(Event.QUEUEING, run=late.id)]
    # It is served at once; what it had not claimed before is no credit.
    begin = teams_of(permits).index("other")
    assert sum(permit.at_ms >= min(queued_ms) for permit in permits[:begin]) <= 3
    # Until all of it is queued, the other team may take what is free.
    begin = next(n for n, permit in enumerate(permits) if n >= begin and permit.at_ms > max(queued_ms))
    assert len(permits) - begin >= JOBS // 2
    assert furthest_ahead(permits, {"one": 1, "other": 1}, begin) <= AHEAD


def test_within_a_team_the_run_of_higher_priority_goes_first(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=50)
    (usual,) = competing(deployment, model, "one")
    urgent = deployment.client_of("one").submit(
        numbered(20), "urgent {{ n }}", model=f"sim:{model}", priority=10
    )
    permits = served(deployment, model, usual, urgent)
    queued_ms = max(at_ms(line) for line in deployment.logged(Event.QUEUEING, run=urgent.id))
    last = max(n for n, permit in enumerate(permits) if permit.run == urgent.id and permit.first)
    while_it_waits = [permit.run for permit in permits[:last] if permit.at_ms > queued_ms]
    assert while_it_waits.count(usual.id) <= BURST
    assert permits[-1].run == usual.id


def test_a_team_at_its_maximum_share_waits_and_says_so_while_others_continue(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=50)
    bounded, free = competing(deployment, model, "bounded", "other")
    reasons = list[str]()

    def is_at_its_most() -> bool:
        why = bounded.why()
        reasons.append(why.sentence)
        return why.constraint == "team_share"

    wait_until(is_at_its_most)
    assert "has 20 % of" in reasons[-1]
    both = served(deployment, model, bounded, free)
    assert both[-1].team == "bounded"
    times = [permit.at_ms / 1000 for permit in both if permit.team == "bounded"]
    # A fifth of 60 a second, and what may be made up for of a second.
    most = 12 * (times[-1] - times[0] + 1) * 1.1 + 1
    assert most >= JOBS

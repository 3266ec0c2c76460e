"""What teams are promised of a lane that they share, on real processes and over HTTP.

Judged by the permits as the scheduler logged them. Their order does not depend on how busy the machine is, so
it is held to the bars of virtual time. What is measured in seconds is allowed `SLACK_S` more, for processes
that wait for a processor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from statistics import fmean
from typing import Any

import pytest

from fairlane.events import Event
from fairlane.handle import Run
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.shares import Taken, furthest_off, least_jain, share_of
from tests.support.wait import wait_until

WEIGHTS = {"small": 1, "middle": 2, "large": 5}
A_SECOND = 50
PLACES = 200  # enough for four seconds: a worker that waits for a processor makes none of them scarce
SLACK_S = 0.5
TEN_S = 10_000
JOBS = 40
FLOOD = 100_000
TOKENS_PER_MINUTE = 300_000
LONG = "word " * 400 + "{{ n }}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers of many slots; the teams of `WEIGHTS`, all others weigh 1."""
    config = "".join(f"[teams.{team}]\nweight = {weight}\n" for team, weight in WEIGHTS.items())
    with cluster(tmp_path_factory.mktemp("shared"), config=config, workers=2, slots=PLACES) as made:
        yield made


def new_lane(shared: Cluster, **limits: float) -> str:
    """A lane of `A_SECOND` calls a second that nobody has used, and no burst worth mention.

    Its rate is what is scarce: that answers are slow on a busy machine is not taken for a limit.
    """
    lane = f"sim:{shared.new_model(latency_ms=50)}"
    stated = {"requests_per_minute": 60 * A_SECOND, "burst_seconds": 0.2, "max_concurrency": PLACES}
    shared.lanes.limit(lane, stated | {"exact": True} | limits)
    return lane


def submit(shared: Cluster, lane: str, team: str, jobs: int, prompt: str = "{{ n }}", **options: Any) -> Run:
    return shared.client_of(team).submit(numbered(jobs), prompt, model=lane, **options)


def at_once(shared: Cluster, lane: str, jobs: dict[str, int]) -> list[Run]:
    """A run of each team, all of them queued before the lane opens."""
    shared.lanes.pause(lane)
    runs = [submit(shared, lane, team, count) for team, count in jobs.items()]
    wait_until(lambda: all(run.status().lanes for run in runs))
    shared.lanes.resume(lane)
    return runs


def granted(shared: Cluster, lane: str) -> list[Taken]:
    """The lane's permits in order."""
    lines = sorted(shared.logged(Event.ACQUIRED, lane=lane), key=lambda line: line["timestamp"])
    return [Taken(_ms(line), line["team"]) for line in lines]


def permits_of(shared: Cluster, run: Run) -> list[int]:
    """When each of a run's permits was granted."""
    return sorted(_ms(line) for line in shared.logged(Event.ACQUIRED, run=run.id))


def _ms(line: dict[str, Any]) -> int:
    return round(datetime.fromisoformat(line["timestamp"]).timestamp() * 1000)


def now_ms() -> int:
    return round(time.time() * 1000)


def teams_of(taken: list[Taken]) -> list[str]:
    return [each.team for each in taken]


def while_all_wait(taken: list[Taken]) -> list[Taken]:
    """Up to the permit with which the first of the teams has had its last."""
    last = {each.team: number for number, each in enumerate(taken)}
    return taken[: min(last.values()) + 1]


def test_equal_teams_are_served_evenly_in_any_ten_seconds(shared: Cluster) -> None:
    teams, lane = ["first", "second", "third"], new_lane(shared)
    for run in at_once(shared, lane, dict.fromkeys(teams, 4 * A_SECOND)):
        all_succeeded(run)

    taken = while_all_wait(granted(shared, lane))
    begin_ms, end_ms = taken[0].at_ms, taken[-1].at_ms
    assert end_ms - begin_ms >= TEN_S
    assert least_jain(taken, teams, TEN_S, begin_ms, end_ms) >= 0.99
    assert furthest_off(teams_of(taken), dict.fromkeys(teams, 1)) <= 2


def test_weights_are_kept_within_two_percent(shared: Cluster) -> None:
    lane = new_lane(shared)
    for run in at_once(shared, lane, {team: 50 * weight for team, weight in WEIGHTS.items()}):
        all_succeeded(run)

    order = teams_of(while_all_wait(granted(shared, lane)))
    assert len(order) >= 0.98 * 400
    for team in WEIGHTS:
        assert order.count(team) == pytest.approx(len(order) * share_of(team, WEIGHTS), rel=0.02)


def test_a_team_that_comes_back_has_its_share_within_a_second_and_no_credit(shared: Cluster) -> None:
    lane, jobs = new_lane(shared), 40
    all_succeeded(submit(shared, lane, "back", 5))
    busy = submit(shared, lane, "busy", 5 * A_SECOND)
    wait_until(lambda: busy.status().jobs_done >= 2 * A_SECOND)
    came_ms = now_ms()
    all_succeeded(submit(shared, lane, "back", jobs))
    all_succeeded(busy)

    served = [each for each in granted(shared, lane) if each.at_ms >= came_ms]
    mine = [number for number, each in enumerate(served) if each.team == "back"]
    assert served[mine[0]].at_ms - came_ms <= 1000 * SLACK_S
    while_both = teams_of(served[mine[0] : mine[-1] + 1])
    assert while_both.count("back") == jobs
    assert furthest_off(while_both, {"back": 1, "busy": 1}) <= 2


@pytest.mark.parametrize("runs", [1, 200], ids=["one run", "many runs"])
def test_a_flood_makes_nobody_wait_longer_than_a_few_jobs_of_that_team_do(shared: Cluster, runs: int) -> None:
    waited: list[list[int]] = []
    for flooding, count in ((3 * JOBS, 1), (FLOOD, runs)):
        lane = new_lane(shared)
        floods = [submit(shared, lane, "flood", flooding // count) for _ in range(count)]
        came_ms = now_ms()
        victim = submit(shared, lane, "victim", JOBS)
        all_succeeded(victim)
        for flood in floods:
            flood.cancel()
        waited.append([at_ms - came_ms for at_ms in permits_of(shared, victim)])
        order = teams_of([each for each in granted(shared, lane) if each.at_ms >= came_ms])
        mine = [number for number, team in enumerate(order) if team == "victim"]
        assert furthest_off(order[mine[0] : mine[-1] + 1], {"victim": 1, "flood": 1}) <= 2

    few, many = waited
    assert max(long - short for short, long in zip(few, many, strict=True)) <= 1000 * SLACK_S


def test_teams_of_many_tokens_and_of_many_requests_have_the_same_dominant_share(shared: Cluster) -> None:
    lane = new_lane(shared, tokens_per_minute=TOKENS_PER_MINUTE)
    shared.lanes.pause(lane)
    requests = submit(shared, lane, "requests", 5 * A_SECOND, params={"max_tokens": 5})
    tokens = submit(shared, lane, "tokens", A_SECOND + 10, params={"max_tokens": 5}, prompt=LONG)
    wait_until(lambda: requests.status().lanes and tokens.status().lanes)
    shared.lanes.resume(lane)
    all_succeeded(requests)
    a_call = [record.usage.total or 0 for record in all_succeeded(tokens)]

    order = teams_of(while_all_wait(granted(shared, lane)))
    had_requests = order.count("requests") / (60 * A_SECOND)
    had_tokens = order.count("tokens") * fmean(a_call) / TOKENS_PER_MINUTE
    assert had_tokens == pytest.approx(had_requests, rel=0.06)

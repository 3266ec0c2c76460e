"""What teams are promised of a lane that they share, on real processes and over HTTP.

Judged by the permits as the scheduler logged them (`tests.support.permits`): whose turn each was does not
depend on how busy the machine is. A wait is measured in permits of the lane that were used, which come at
`A_SECOND`: a machine that stalls delays all of them. A team waits while one of its jobs has had no permit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Any

import pytest

from fairlane.client.outputs import Run
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.permits import Permit, furthest_ahead, granted, kept, teams_of, while_all_wait
from tests.support.shares import Taken, least_jain, share_of
from tests.support.wait import wait_until

WEIGHTS = {"small": 1, "middle": 2, "large": 5}
A_SECOND = 50
PLACES = 200  # enough for four seconds: a worker that waits for a processor makes none of them scarce
SOON = A_SECOND // 2  # permits: half a second of the lane
TEN_S = 10_000
JOBS = 40
FEW = 20 * JOBS  # enough that it still waits when the victim comes, however slow the machine is
FLOOD = 100_000
TOKENS_PER_MINUTE = 300_000
AHEAD = 1.5  # permits: a team may be granted the one that takes it past its share
LONG = "word " * 400 + "{{ n }}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers of many slots; the teams of `WEIGHTS`, all others weigh 1.

    That a run's first calls are few until one is answered would part runs whose shares are equal.
    """
    config = "".join(f"[teams.{team}]\nweight = {weight}\n" for team, weight in WEIGHTS.items())
    bounds, directory = {"first_calls": 0}, tmp_path_factory.mktemp("shared")
    with cluster(directory, config=config, scheduler=bounds, workers=2, slots=PLACES) as made:
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


def _is_fed(run: Run) -> bool:
    return bool(run.status().lanes)


def at_once(shared: Cluster, lane: str, jobs: dict[str, int]) -> list[Run]:
    """A run of each team, all of them queued before the lane opens."""
    shared.lanes.pause(lane)
    runs = [submit(shared, lane, team, count) for team, count in jobs.items()]
    wait_until(lambda: all(map(_is_fed, runs)))
    shared.lanes.resume(lane)
    return runs


def places_of(team: str, permits: list[Permit]) -> list[int]:
    """Which of these permits are the first ones of the team's jobs."""
    return [number for number, each in enumerate(permits) if each.first and each.team == team]


def waits(permits: list[Permit], since_ms: int, places: list[int]) -> list[int]:
    """How many permits were used from a time until each of these."""
    return [sum(each.at_ms >= since_ms for each in kept(permits[:place])) for place in places]


def now_ms() -> int:
    return round(time.time() * 1000)


def test_equal_teams_are_served_evenly_in_any_ten_seconds(shared: Cluster) -> None:
    teams, lane = ["first", "second", "third"], new_lane(shared)
    for run in at_once(shared, lane, dict.fromkeys(teams, 4 * A_SECOND)):
        all_succeeded(run)

    permits = while_all_wait(granted(shared, lane))
    taken = [Taken(each.at_ms, each.team) for each in kept(permits)]
    begin_ms, end_ms = taken[0].at_ms, taken[-1].at_ms
    assert end_ms - begin_ms >= TEN_S
    assert least_jain(taken, teams, TEN_S, begin_ms, end_ms) >= 0.99
    assert furthest_ahead(permits, dict.fromkeys(teams, 1)) <= AHEAD


def test_weights_are_kept_within_two_percent(shared: Cluster) -> None:
    lane = new_lane(shared)
    for run in at_once(shared, lane, {team: 50 * weight for team, weight in WEIGHTS.items()}):
        all_succeeded(run)

    firsts = [permit for permit in granted(shared, lane) if permit.first]
    order = teams_of(while_all_wait(firsts))
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

    permits = granted(shared, lane)
    mine = [each for each in places_of("back", permits) if permits[each].at_ms >= came_ms]
    assert len(mine) == jobs
    assert waits(permits, came_ms, mine[:1])[0] <= SOON
    assert furthest_ahead(permits, {"back": 1, "busy": 1}, mine[0], mine[-1] + 1) <= AHEAD


@pytest.mark.parametrize("runs", [1, 200], ids=["one run", "many runs"])
def test_a_flood_makes_nobody_wait_longer_than_a_few_jobs_of_that_team_do(shared: Cluster, runs: int) -> None:
    waited: list[list[int]] = []
    for flooding, count in ((FEW, 1), (FLOOD, runs)):
        lane = new_lane(shared)
        floods = [submit(shared, lane, "flood", flooding // count) for _ in range(count)]
        wait_until(partial(_is_fed, floods[0]))  # else the victim may be fed first
        came_ms = now_ms()
        victim = submit(shared, lane, "victim", JOBS)
        all_succeeded(victim)
        for flood in floods:
            flood.cancel()
        permits = granted(shared, lane)
        mine = places_of("victim", permits)
        assert furthest_ahead(permits, {"victim": 1, "flood": 1}, mine[0], mine[-1] + 1) <= AHEAD
        waited.append(waits(permits, came_ms, mine))

    few, many = waited
    assert max(long - short for short, long in zip(few, many, strict=True)) <= SOON


def test_teams_of_many_tokens_and_of_many_requests_have_the_same_dominant_share(shared: Cluster) -> None:
    # After a stall of the machine, a deeper bucket has the tokens that the next calls in turn need.
    lane = new_lane(shared, tokens_per_minute=TOKENS_PER_MINUTE, burst_seconds=1.0)
    shared.lanes.pause(lane)
    requests = submit(shared, lane, "requests", 5 * A_SECOND, params={"max_tokens": 5})
    tokens = submit(shared, lane, "tokens", A_SECOND + 10, params={"max_tokens": 5}, prompt=LONG)
    wait_until(lambda: requests.status().lanes and tokens.status().lanes)
    shared.lanes.resume(lane)
    all_succeeded(requests)
    a_call = [record.usage.total for record in all_succeeded(tokens) if record.usage.total]

    permits = while_all_wait(granted(shared, lane))
    share_of_call = {"requests": 1 / (60 * A_SECOND), "tokens": fmean(a_call) / TOKENS_PER_MINUTE}
    # A call of many tokens is worth five of the others.
    assert furthest_ahead(permits, {team: 1 / share for team, share in share_of_call.items()}) <= 2 * AHEAD
    order = teams_of(kept(permits))
    assert order.count("tokens") >= 45

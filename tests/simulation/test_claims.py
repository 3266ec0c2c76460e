"""What is kept for teams, and the most that they may take, by the whole scheduler in virtual time."""

from __future__ import annotations

from collections import Counter

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, Success
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

PER_S = 50
LIMITED = {"requests_per_minute": PER_S * 60, "burst_seconds": 1.0, "exact": True}
ALL_SLOTS = {"reserved_slots_percent": 0}
PLENTY = 5000


def had(cluster: Cluster, seconds: float) -> dict[str, float]:
    """What each team has of the lane in so many seconds from now, once the saved burst is used up."""
    cluster.run_for(2)
    began = len(cluster.starts)
    cluster.run_for(seconds)
    counts = Counter(start.attempt.team for start in cluster.starts[began:])
    return {team: count / (PER_S * seconds) for team, count in counts.items()}


def test_a_share_that_is_not_lent_stays_free_for_its_team(real_redis: Redis) -> None:
    teams = {"ads": {"weight": 1, "lendable_percent": 0}, "search": {"weight": 3}}
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED}, teams=teams)
    cluster.submit(PLENTY, team="search")
    assert had(cluster, 10) == {"search": pytest.approx(0.75, rel=0.02)}

    began = len(cluster.starts)
    cluster.submit(PLENTY, team="ads")
    cluster.run_for(1)
    first = Counter(start.attempt.team for start in cluster.starts[began:])
    assert first["ads"] >= 0.25 * PER_S
    assert had(cluster, 10) == {"ads": pytest.approx(0.25, rel=0.02), "search": pytest.approx(0.75, rel=0.02)}


def test_half_of_a_share_may_be_lent(real_redis: Redis) -> None:
    teams = {"ads": {"lendable_percent": 50}, "search": 1}
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED}, teams=teams)
    cluster.submit(PLENTY, team="search")

    assert had(cluster, 20) == {"search": pytest.approx(0.75, rel=0.02)}


@pytest.mark.parametrize(
    ("claim", "part"),
    [
        ({"borrowing_limit_percent": 0}, 0.25),
        ({"borrowing_limit_percent": 100}, 0.5),
        ({"borrowing_limit_percent": 1000}, 1.0),
        ({"max_percent": 40}, 0.4),
        ({"max_percent": 40, "borrowing_limit_percent": 20}, 0.3),
    ],
)
def test_a_lone_team_takes_no_more_than_it_may_borrow(
    real_redis: Redis, claim: dict[str, float], part: float
) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED}, teams={"ads": claim, "search": 3})
    cluster.submit(PLENTY, team="ads")

    assert had(cluster, 20) == {"ads": pytest.approx(part, rel=0.02)}


def test_calls_above_one_teams_maximum_go_to_the_others(real_redis: Redis) -> None:
    cluster = Cluster(
        real_redis, lanes={"sim:fast": LIMITED}, teams={"ads": {"weight": 9, "max_percent": 20}}
    )
    for _ in range(3):
        cluster.submit(PLENTY, team="ads")
    cluster.submit(PLENTY, team="search")

    assert had(cluster, 20) == {"ads": pytest.approx(0.2, rel=0.03), "search": pytest.approx(0.8, rel=0.02)}


def test_a_team_gets_its_reserved_share_although_many_others_wait(real_redis: Redis) -> None:
    others = [f"team{number}" for number in range(60)]
    teams = {"ads": {"weight": 20, "lendable_percent": 0}} | dict.fromkeys(others, 1)
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED}, teams=teams)
    for team in others:
        cluster.submit(200, team=team)
    cluster.run_for(5)
    cluster.submit(PLENTY, team="ads")

    assert had(cluster, 10)["ads"] == pytest.approx(0.25, rel=0.03)


def lasting(attempt: Attempt) -> tuple[float, Outcome]:
    """A provider that takes 20 ms a token, and so long for 20 tokens until it begins."""
    seconds, tokens = (2.0, 80) if attempt.team == "slow" else (0.5, 5)
    return seconds, Success("yes", Usage(5, tokens))


def occupied(cluster: Cluster, team: str, from_s: float, until_s: float, began_ms: int) -> float:
    """Calls of a team in flight, on average over a while."""
    total = 0.0
    for start in cluster.starts:
        if start.attempt.team == team:
            at = (start.at_ms - began_ms) / 1000
            total += max(0.0, min(until_s, at + lasting(start.attempt)[0]) - max(from_s, at))
    return total / (until_s - from_s)


def test_a_window_is_shared_by_how_long_calls_hold_it(real_redis: Redis) -> None:
    window = {"requests_per_minute": 0, "max_concurrency": 20}
    cluster = Cluster(real_redis, lanes={"sim:fast": window}, provider=lasting)
    began_ms = cluster.now_ms
    cluster.submit(PLENTY, team="slow")
    cluster.submit(PLENTY, team="quick")

    cluster.run_for(60)

    slow, quick = (occupied(cluster, team, 10, 60, began_ms) for team in ("slow", "quick"))
    assert slow == pytest.approx(quick, rel=0.1)
    assert slow + quick > 19


def test_slots_are_shared_over_all_lanes(real_redis: Redis) -> None:
    """One team has work on one lane, the other on three: with too few slots each has half of them."""
    cluster = Cluster(real_redis, provider=lasting, workers=[FakeWorker("w1", 24)], bounds=ALL_SLOTS)
    began_ms = cluster.now_ms
    for model in ("fast", "slow", "judge"):
        cluster.submit(PLENTY, team="quick", model=f"sim:{model}")
    cluster.submit(PLENTY, team="slow", model="sim:fast")

    cluster.run_for(30)

    slow, quick = (occupied(cluster, team, 5, 30, began_ms) for team in ("slow", "quick"))
    assert slow == pytest.approx(12, abs=0.7)
    assert quick == pytest.approx(12, abs=0.7)


def test_slots_that_a_team_cannot_use_go_to_the_others(real_redis: Redis) -> None:
    # Slots become free twice a second: a bucket of one call, 1.02 s between calls, would miss every other.
    lanes = {"sim:slow": {"requests_per_minute": 60, "burst_seconds": 2.0, "exact": True}}
    workers = [FakeWorker("w1", 24)]
    cluster = Cluster(real_redis, provider=lasting, lanes=lanes, workers=workers, bounds=ALL_SLOTS)
    began_ms = cluster.now_ms
    cluster.submit(PLENTY, team="slow", model="sim:slow")
    cluster.submit(PLENTY, team="quick", model="sim:fast")

    cluster.run_for(30)

    assert occupied(cluster, "slow", 5, 30, began_ms) == pytest.approx(2, abs=0.2)
    assert occupied(cluster, "quick", 5, 30, began_ms) == pytest.approx(22, abs=0.5)

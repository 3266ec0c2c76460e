"""Who goes first, in virtual time: teams by weight, runs in turn, priorities and judges before the rest."""

from __future__ import annotations

from collections import Counter

import pytest
from redis import Redis

from tests.support.scheduling import Cluster
from tests.support.stand_ins import CALL_S, FakeWorker, Start

LIMITED = {"requests_per_minute": 3000, "burst_seconds": 1.0}


def by_team(starts: list[Start]) -> Counter[str]:
    return Counter(start.attempt.team for start in starts)


def test_a_lane_is_shared_by_the_weights_of_the_teams(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED}, teams={"small": 1, "middle": 2, "large": 5})
    for team in ("small", "middle", "large"):
        cluster.submit(1000, team=team)

    cluster.run_for(20)

    shares = by_team(cluster.started("sim:fast")[:1000])
    for team, weight in (("small", 1), ("middle", 2), ("large", 5)):
        assert shares[team] == pytest.approx(1000 * weight / 8, rel=0.02)


def test_slots_are_shared_by_weight_where_the_lane_has_no_rate(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, teams={"large": 3}, workers=[FakeWorker("w1", 8)])
    cluster.submit(400, team="large")
    cluster.submit(400, team="small")

    cluster.run_for(15)

    shares = by_team(cluster.starts)
    assert shares["large"] / shares["small"] == pytest.approx(3, rel=0.1)


def test_a_lone_team_gets_the_whole_lane_and_lends_it_back_at_once(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED})
    cluster.submit(1000, team="first")
    cluster.run_for(6)
    alone = len(cluster.starts)
    assert alone >= 50 * 6 * 0.97

    cluster.submit(200, team="second")
    cluster.run_for(4)

    shares = by_team(cluster.starts[alone:])
    assert shares["second"] == pytest.approx(shares["first"], rel=0.05)


def test_a_small_run_is_not_stuck_behind_a_huge_one_of_its_team(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED})
    cluster.submit(5000)
    cluster.run_for(2)

    small = cluster.submit(20)

    assert cluster.run_until_finished(small) <= 40 / 50 + CALL_S + 0.2


def test_priority_comes_before_turns_and_ends_with_its_run(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED})
    usual = cluster.submit(500)
    cluster.run_for(2)
    begun = len(cluster.started(ref=usual))

    urgent = cluster.submit(100, priority=5)
    took = cluster.run_until_finished(urgent)

    assert took <= 100 / 50 + CALL_S + 0.1
    while_urgent = cluster.starts[begun:][: 100 + 5]
    assert Counter(start.attempt.run for start in while_urgent)[urgent.run] >= 99
    cluster.run_until_finished(usual)


def test_a_priority_counts_inside_its_team_alone(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED})
    cluster.submit(500, team="first", priority=100)
    cluster.submit(500, team="second", priority=-100)

    cluster.run_for(8)

    shares = by_team(cluster.starts)
    assert shares["first"] == pytest.approx(shares["second"], rel=0.02)


def test_a_ready_judge_goes_before_tasks_that_nobody_has_tried(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": 600}})
    ref = cluster.submit(100, judges=["sim:fast"])

    cluster.run_for(15)

    starts = cluster.started("sim:fast", ref)
    ended = {start.attempt.job: start.at_ms + 500 for start in starts if start.attempt.job % 2 == 0}
    judged = {start.attempt.job - 1: start.at_ms for start in starts if start.attempt.job % 2}
    # A judge waits for the permit after next at most; the tasks behind it wait for it.
    waits = [judged[task] - ended[task] for task in judged]
    assert len(waits) >= 60
    assert max(waits[10:]) <= 1000
    assert [task for task in ended if ended[task] <= cluster.now_ms - 1000 and task not in judged] == []


def test_runs_of_a_team_take_turns_on_every_lane(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED, "sim:slow": {"requests_per_minute": 600}})
    rows = [{"q": n, "lane": "slow" if n % 5 == 0 else "fast"} for n in range(600)]
    runs = [cluster.submit(rows, model="sim:{{ lane }}") for _ in range(3)]

    cluster.run_for(8)

    for lane in ("sim:fast", "sim:slow"):
        counts = [len(cluster.started(lane, ref)) for ref in runs]
        assert max(counts) - min(counts) <= max(3, 0.05 * max(counts))


def test_a_run_is_shared_by_weight_while_it_lasts_and_time_is_never_lost(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": LIMITED}, teams={"large": 4})
    large, small = cluster.submit(400, team="large"), cluster.submit(400, team="small")

    took_large = cluster.run_until_finished(large)
    took = took_large + cluster.run_until_finished(small)

    assert took_large <= 400 / 40 + CALL_S + 0.2
    assert took <= (800 - 50) / 50 * 1.03 + CALL_S

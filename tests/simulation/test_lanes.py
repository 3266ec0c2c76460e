"""Lanes in virtual time: each at its own rate, none slowed by another, no slot idle that could be used."""

from __future__ import annotations

from itertools import pairwise

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, Success
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster
from tests.support.stand_ins import CALL_S, FakeWorker, Start, answers, excess

FAST = {"requests_per_minute": 6000, "burst_seconds": 1.266}
SLOW = {"requests_per_minute": 300, "burst_seconds": 1.266}


def burst_of(per_minute: float, burst_s: float = 1.0) -> float:
    return max(1.0, per_minute / 60 * burst_s)


def last_s(cluster: Cluster, starts: list[Start], began_ms: int) -> float:
    return (starts[-1].at_ms - began_ms) / 1000


@pytest.mark.parametrize("per_minute", [5, 60, 300, 3000])
def test_a_lane_starts_no_more_than_its_rate_and_its_burst(real_redis: Redis, per_minute: int) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": per_minute}})
    ref = cluster.submit(min(per_minute, 600))

    took = cluster.run_until_finished(ref)

    starts = cluster.started("sim:fast")
    assert len(starts) == min(per_minute, 600)
    assert excess(starts, per_minute) <= burst_of(per_minute)
    ideal = (len(starts) - burst_of(per_minute)) / (per_minute / 60) + CALL_S
    assert took <= ideal * 1.03 + 0.1
    assert cluster.short_of_slots == 0


def test_a_throttled_lane_does_not_slow_another_run(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": FAST, "sim:slow": SLOW})
    slow, fast = cluster.submit(60, model="sim:slow"), cluster.submit(900, model="sim:fast")

    assert cluster.run_until_finished(fast) <= (900 - 100) / 100 + CALL_S + 0.3
    assert cluster.run_until_finished(slow) <= 60 / 5


def test_a_throttled_lane_does_not_slow_another_inside_one_run(real_redis: Redis) -> None:
    mixed = [{"q": n, "lane": "slow" if n % 3 == 2 else "fast"} for n in range(300)]
    rows = mixed + [{"q": n, "lane": "fast"} for n in range(1000)]
    cluster = Cluster(real_redis, lanes={"sim:fast": FAST, "sim:slow": SLOW})
    began_ms = cluster.now_ms
    ref = cluster.submit(rows, model="sim:{{ lane }}")

    took = cluster.run_until_finished(ref)

    fast, slow = cluster.started("sim:fast"), cluster.started("sim:slow")
    assert (len(fast), len(slow)) == (1200, 100)
    ideal = (1200 - 100) / 100
    assert last_s(cluster, fast, began_ms) <= ideal * 1.03
    assert took <= max(ideal, (100 - 5) / 5 + CALL_S) * 1.03


def test_the_slow_items_in_front_do_not_keep_the_fast_lane_waiting(real_redis: Redis) -> None:
    rows = [{"q": n, "lane": "slow"} for n in range(400)] + [{"q": n, "lane": "fast"} for n in range(50)]
    cluster = Cluster(real_redis, lanes={"sim:fast": FAST, "sim:slow": SLOW})
    began_ms = cluster.now_ms
    cluster.submit(rows, model="sim:{{ lane }}")

    cluster.run_for(2)

    assert len(cluster.started("sim:fast")) == 50
    assert last_s(cluster, cluster.started("sim:fast"), began_ms) < 0.5


def test_a_throttled_judge_does_not_stop_the_tasks_of_its_run(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": FAST, "sim:judge": SLOW})
    began_ms = cluster.now_ms
    ref = cluster.submit(600, judges=["sim:judge"], bounds={"ahead": 0})

    cluster.run_for((600 - 100) / 100 + 1)

    assert len(cluster.started("sim:fast", ref)) == 600
    assert last_s(cluster, cluster.started("sim:fast"), began_ms) <= (600 - 100) / 100 * 1.03 + 0.1


def test_a_job_that_may_start_is_started_while_a_slot_is_free(real_redis: Redis) -> None:
    durations = iter(lambda: 0.3, None)
    cluster = Cluster(
        real_redis,
        workers=[FakeWorker("w1", 12), FakeWorker("w2", 7)],
        provider=lambda attempt: (next(durations) + attempt.job % 5 / 10, Success("yes", Usage(1, 1))),
    )
    ref = cluster.submit(400)

    queue = cluster.keys.fresh(ref, "sim:fast")
    idle_since: int | None = None
    for now_ms in cluster.moments(600):
        idle = sum(worker.free for worker in cluster.workers) > 0 and real_redis.llen(queue) > 0
        idle_since = (idle_since or now_ms) if idle else None
        # A worker must first hear of the new lane; after that, the runner's quantum is all that passes.
        limit_ms = 20 if len(cluster.starts) == 0 else 5
        assert idle_since is None or now_ms - idle_since <= limit_ms
        if cluster.status(ref).state.finished:
            break
    assert cluster.status(ref).progress == 1
    assert cluster.peak[""] == 19


def test_an_unlimited_lane_is_fed_as_fast_as_the_workers_take(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, workers=[FakeWorker("w1", 600)])
    ref = cluster.submit(1500)

    assert cluster.run_until_finished(ref) <= 3 * CALL_S + 0.15
    assert cluster.peak[""] == 570  # a twentieth is reserved for other teams


def test_no_more_is_sent_than_the_workers_have_slots(real_redis: Redis) -> None:
    cluster = Cluster(
        real_redis,
        workers=[FakeWorker("w1", 5, ["sim:a", "sim:b"]), FakeWorker("w2", 3, ["sim:a", "sim:b"])],
    )
    cluster.submit(60, model="sim:a")
    cluster.submit(60, model="sim:b")

    cluster.run_until_finished()

    assert cluster.short_of_slots == 0
    assert cluster.peak[""] == 8
    assert max(start.waited_ms for start in cluster.starts) == 0


def test_the_global_cap_is_kept_and_used(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, bounds={"max_in_flight": 9})
    cluster.submit(40, model="sim:a")
    cluster.submit(40, model="sim:b")

    took = cluster.run_until_finished()

    assert cluster.peak[""] == 9
    assert took <= 80 / 9 * CALL_S + 0.6


def test_a_lane_keeps_its_window(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"max_concurrency": 4}})
    ref = cluster.submit(40)

    took = cluster.run_until_finished(ref)

    assert cluster.peak["sim:fast"] == 4
    assert took <= 40 / 4 * CALL_S + 0.2


def test_starts_of_a_lane_keep_their_gap(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"min_gap_ms": 120}})
    ref = cluster.submit(20)

    cluster.run_until_finished(ref)

    assert all(after.at_ms - before.at_ms >= 120 for before, after in pairwise(cluster.starts))


def test_lanes_that_contend_for_slots_share_them(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, workers=[FakeWorker("w1", 10)])
    cluster.submit(200, model="sim:a")
    cluster.submit(200, model="sim:b")

    cluster.run_for(8)

    first, second = len(cluster.started("sim:a")), len(cluster.started("sim:b"))
    assert first + second >= 10 * 8 / CALL_S * 0.9
    assert abs(first - second) <= 30


def test_a_worker_that_stops_does_not_keep_the_others_from_their_slots(real_redis: Redis) -> None:
    ending, staying = FakeWorker("ending", 10), FakeWorker("staying", 10)
    cluster = Cluster(real_redis, workers=[ending, staying], bounds={"reserved_slots_percent": 0})

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        return 30.0 if attempt.id in ending.calls else CALL_S, Success("yes", Usage(1, 1))

    def stop() -> None:
        ending.stopping = True
        cluster.beat(ending, changed=True)

    cluster.provider = provider
    cluster.submit(1000)
    cluster.at(1, stop)

    cluster.run_for(11)

    assert len(ending.calls) == 10
    assert len([start for start in cluster.starts if start.worker == "staying"]) >= 10 * 11 / CALL_S * 0.95
    assert cluster.short_of_slots == 0


def test_a_lane_without_a_worker_stops_no_other(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, workers=[FakeWorker("w1", 10, ["sim:served"])])
    lonely, served = cluster.submit(20, model="sim:lonely"), cluster.submit(20, model="sim:served")

    cluster.run_until_finished(served)
    assert cluster.started(ref=lonely) == []

    cluster.add_worker(FakeWorker("w2", 10))
    cluster.run_until_finished(lonely)
    assert len(cluster.started(ref=lonely)) == 20


def test_tokens_bound_a_lane_and_what_was_not_used_comes_back(real_redis: Redis) -> None:
    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        return 0.2, Success("yes", Usage(50, 50))

    cluster = Cluster(real_redis, lanes={"sim:fast": {"tokens_per_minute": 60_000}}, provider=provider)
    ref = cluster.submit(200, params={"max_tokens": 500})

    took = cluster.run_until_finished(ref)

    used = 200 * 100
    assert took >= (used - 1000) / 1000 * 0.97
    assert took <= (used + 500) / 1000 * 1.1


@pytest.mark.parametrize(
    ("bounds", "a_second"),
    [
        ({"input": 30_000}, 10),
        ({"output": 30_000}, 20),
        ({"input": 30_000, "output": 12_000}, 8),
        ({"input": 30_000, "output": 30_000}, 10),
    ],
)
def test_a_lane_runs_at_the_pace_of_the_axis_that_binds_it(
    real_redis: Redis, bounds: dict[str, float], a_second: float
) -> None:
    lane = {f"{axis}_tokens_per_minute": per_minute for axis, per_minute in bounds.items()}
    cluster = Cluster(
        real_redis,
        lanes={"sim:fast": lane},
        provider=lambda _: (0.2, Success("yes", Usage(50, 25))),
    )
    ref = cluster.submit(400, params={"max_tokens": 40})

    took = cluster.run_until_finished(ref)

    assert 400 / a_second * 0.95 <= took <= 400 / a_second * 1.15


def test_a_run_that_uses_up_its_day_goes_on_when_the_next_begins(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_day": 40}})
    midnight_ms = (cluster.now_ms // 86_400_000 + 1) * 86_400_000
    ref = cluster.submit(50)

    cluster.run_for(60)
    assert len(cluster.started(ref=ref)) == 40

    # Beats go on for hours: let the night pass at once.
    cluster.clock.advance((midnight_ms - 1000 - cluster.now_ms) / 1000)
    cluster.run_for(0.9)
    assert len(cluster.started(ref=ref)) == 40
    cluster.run_until_finished(ref, limit_s=10)
    assert cluster.started(ref=ref)[40].at_ms >= midnight_ms


def test_a_limit_that_is_raised_takes_effect_within_a_second(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": 60}}, provider=answers)
    cluster.submit(500)
    cluster.run_for(5)
    assert len(cluster.starts) <= 6

    cluster.lanes.limit("sim:fast", {"requests_per_minute": 6000})
    cluster.run_for(1)

    assert len(cluster.starts) >= 50


@pytest.mark.parametrize("lanes", [("a", "b"), ("b", "a"), ("c", "d"), ("e", "f")])
def test_calls_that_end_together_free_their_slots_for_every_lane_in_turn(
    real_redis: Redis, lanes: tuple[str, ...]
) -> None:
    cluster = Cluster(real_redis, workers=[FakeWorker("w1", 10)])
    rows = [{"q": n, "lane": lanes[n % 2]} for n in range(200)]
    began_ms = cluster.now_ms
    ref = cluster.submit(rows, model="sim:{{ lane }}", judges=["sim:judge"])

    cluster.run_until_finished(ref)

    for lane in lanes:
        starts = cluster.started(f"sim:{lane}")
        gaps = [later.at_ms - earlier.at_ms for earlier, later in pairwise(starts)]
        assert starts[0].at_ms - began_ms <= 4000 * CALL_S
        assert max(gaps) <= 6000 * CALL_S

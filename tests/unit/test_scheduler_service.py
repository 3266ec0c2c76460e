"""The service: one tick over all parts, terms that begin anew, and what holds on every Redis."""

from __future__ import annotations

import json

import pytest
from redis import Redis
from structlog.testing import capture_logs

from fairlane.config.settings import Settings
from fairlane.core.clock import DeploymentTime, ManualClock
from fairlane.model.outcome import Success
from fairlane.model.run import RunRef, RunState
from fairlane.store.keys import Keys
from fairlane_scheduler.service import HOUSEKEEPING_MS, Scheduler
from fairlane_scheduler.state import server_time
from fairlane_scheduler.state.server_time import RedisTime
from tests.support.scheduling import Cluster
from tests.support.stand_ins import CollectingPublisher, FakeWorker, VirtualTime


def contents(redis: Redis) -> dict[bytes, bytes]:
    """Everything but the leader's lease."""
    return {key: redis.dump(key) for key in redis.scan_iter(count=1000) if not key.endswith(b"leader")}


@pytest.mark.parametrize("redis", ["real", "fake"], indirect=True)
def test_a_run_goes_from_the_inbox_to_its_end(redis: Redis) -> None:
    cluster = Cluster(redis, lanes={"sim:fast": {"requests_per_minute": 600}})
    ref = cluster.submit(30, judges=["sim:judge"])

    cluster.run_until_finished(ref)

    status = cluster.status(ref)
    assert (status.state, status.progress, status.jobs) == (RunState.COMPLETED, 1.0, 60)


def test_a_submission_starts_within_the_tick_that_reads_it(fake_redis: Redis) -> None:
    cluster = Cluster(fake_redis)
    warm = cluster.submit(1)
    cluster.run_until_finished(warm)
    cluster.run_for(5)

    ref = cluster.submit(5)
    cluster.run_for(0.005)

    assert len(cluster.started(ref=ref)) == 5


def test_a_step_back_of_the_servers_clock_is_logged_once(fake_redis: Redis) -> None:
    cluster = Cluster(fake_redis)
    cluster.run_for(3)
    with capture_logs() as logs:
        noted = int(fake_redis.hget(cluster.keys.clock, "seen_ms") or 0)
        fake_redis.hset(cluster.keys.clock, "seen_ms", noted + 60_000)
        cluster.run_for(3)

    [step] = [line for line in logs if line["event"] == "clock_stepped"]
    assert step["log_level"] == "warning"
    assert 58 <= step["back_s"] <= 60


def test_the_leader_logs_an_active_run_every_thirty_seconds(fake_redis: Redis) -> None:
    cluster = Cluster(fake_redis, lanes={"sim:fast": {"requests_per_minute": 60}})
    cluster.submit(200)
    with capture_logs() as logs:
        cluster.run_for(65)

    beats = [line for line in logs if line["event"] == "run_progress"]
    assert [line["total"] for line in beats] == [200, 200]
    assert 25 <= beats[0]["done"] <= 35 < 55 <= beats[1]["done"] <= 65


def test_by_default_decisions_use_the_servers_clock(fake_redis: Redis) -> None:
    seconds, _ = fake_redis.time()
    time = RedisTime(fake_redis, Keys("test"), ManualClock())

    assert time.argument() == ""
    assert abs(time.now_ms() - seconds * 1000) < 5000


def test_the_servers_clock_is_asked_once_a_second_and_carried_on(
    fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, answers = ManualClock(), iter([DeploymentTime(100_005), DeploymentTime(200_000)])
    monkeypatch.setattr(server_time, "read_time", lambda *_: next(answers))
    time = RedisTime(fake_redis, Keys("test"), clock)

    seen = [time.now_ms()]
    for _ in range(2):
        clock.advance(0.5)
        seen.append(time.now_ms())

    assert seen == [100_005, 100_505, 200_000]


def test_a_scheduler_runs_on_the_servers_clock(fake_redis: Redis) -> None:
    settings = Settings.model_validate({"redis": {"deployment": "test"}})
    scheduler = Scheduler(fake_redis, settings, ManualClock(), "me", CollectingPublisher())

    assert 0 < scheduler.tick() <= HOUSEKEEPING_MS
    assert scheduler.leader.leads


def test_a_leader_whose_passes_fail_is_logged_once(fake_redis: Redis) -> None:
    settings, clock = Settings.model_validate({"redis": {"deployment": "test"}}), ManualClock()
    scheduler = Scheduler(fake_redis, settings, clock, "first", CollectingPublisher(), VirtualTime(clock))

    with capture_logs() as logs:
        for _ in range(3):
            scheduler.tick()
            scheduler.store_came_back()

    assert [line["epoch"] for line in logs if line["event"] == "leader_elected"] == [1]


def test_the_log_says_who_leads_and_who_leads_no_more(fake_redis: Redis) -> None:
    settings, clock = Settings.model_validate({"redis": {"deployment": "test"}}), ManualClock()
    first, second = (
        Scheduler(fake_redis, settings, clock, name, CollectingPublisher(), VirtualTime(clock))
        for name in ("first", "second")
    )

    with capture_logs() as logs:
        first.tick()
        clock.advance(settings.scheduler.leader_lease_seconds)
        second.tick()
        first.tick()

    lines = [(line["event"], line["epoch"]) for line in logs if line["event"].startswith("leader")]
    assert lines == [("leader_elected", 1), ("leader_elected", 2), ("leader_lost", 1)]


def test_a_standby_touches_nothing_but_the_lease(fake_redis: Redis) -> None:
    cluster = Cluster(fake_redis, standbys=1)
    cluster.processes[0].scheduler.tick()
    ref = cluster.submit(5)
    before = contents(fake_redis)

    wait = cluster.processes[1].scheduler.tick()

    assert 0 < wait <= 1000
    assert contents(fake_redis) == before
    assert not fake_redis.exists(cluster.keys.state(ref))


def test_the_names_of_connections_are_published_and_nothing_else_of_them(fake_redis: Redis) -> None:
    settings = Settings.model_validate(
        {
            "redis": {"deployment": "test"},
            "connections": {
                "sim": {"protocol": "openai", "base_url": "http://secret.host/v1", "api_key_env": "SECRET"}
            },
        }
    )
    Scheduler(fake_redis, settings, ManualClock(), "me", CollectingPublisher()).tick()

    published = fake_redis.get(Keys("test").catalog)
    assert json.loads(published) == {
        "connections": {"sim": {"protocol": "openai", "scope": "model", "lanes": "sim", "key": True}}
    }


def test_a_marked_lane_is_dispatched_in_the_same_tick(fake_redis: Redis) -> None:
    worker = FakeWorker("w1", 0)
    cluster = Cluster(fake_redis, workers=[worker])
    ref = cluster.submit(5)
    cluster.run_for(1.5)
    assert cluster.starts == []
    worker.slots = 5

    cluster.beat(worker, changed=True)
    cluster.run_for(0.005)

    assert len(cluster.started(ref=ref)) == 5


def test_retries_that_are_due_are_reported_to_the_log(fake_redis: Redis) -> None:
    cluster = Cluster(fake_redis)
    ref = cluster.submit(1)
    cluster.run_for(0.1)
    attempt = cluster.starts[0].attempt
    fake_redis.zadd(cluster.keys.delayed, {f"{ref}|{attempt.job}:20|sim:fast": cluster.now_ms})

    with capture_logs() as logs:
        cluster.processes[0].scheduler.tick(set())

    lines = [line for line in logs if line["event"] == "queueing"]
    assert [(line["run"], line["job"], line["lane"], line["queue_depth"]) for line in lines] == [
        (ref.run, 0, "sim:fast", 1)
    ]


def test_a_redis_that_lost_everything_is_led_anew(fake_redis: Redis) -> None:
    cluster = Cluster(fake_redis)
    lost = cluster.submit(50)
    cluster.run_for(0.3)
    fake_redis.flushall()
    for worker in cluster.workers:
        worker.calls.clear()
    scheduler = cluster.processes[0].scheduler
    scheduler.store_came_back()

    scheduler.tick(None)
    cluster.run_for(2)
    ref = cluster.submit(20)
    cluster.run_until_finished(ref)

    assert cluster.status(ref).progress == 1
    assert scheduler._backlog.get(lost) is None


def test_leases_that_lapsed_while_redis_was_away_are_left_to_the_workers_that_live(fake_redis: Redis) -> None:
    cluster = Cluster(fake_redis, provider=lambda attempt: (60.0, Success("yes")))
    ref = cluster.submit(5)
    cluster.run_for(1)
    cluster.clock.advance(30)
    scheduler = cluster.processes[0].scheduler
    scheduler.store_came_back()
    scheduler.tick(None)

    cluster.run_until_finished(ref)

    assert len(cluster.starts) == 5, "each call was made once"


def test_a_run_of_another_version_does_not_stop_the_others(fake_redis: Redis) -> None:
    cluster = Cluster(fake_redis)
    fake_redis.sadd(cluster.keys.active, "search/future")
    fake_redis.set(cluster.keys.plan(RunRef("search", "future")), '{"spec":{"version":7}}')
    ref = cluster.submit(10)

    cluster.run_until_finished(ref)

    assert cluster.status(ref).progress == 1


def test_of_two_schedulers_of_one_name_only_one_leads(fake_redis: Redis) -> None:
    settings, clock = Settings.model_validate({"redis": {"deployment": "test"}}), ManualClock()
    first, second = (
        Scheduler(fake_redis, settings, clock, "me", CollectingPublisher(), VirtualTime(clock))
        for _ in range(2)
    )
    for _ in range(10):
        first.tick()
        second.tick()
        assert (first.leader.leads, second.leader.leads) == (True, False)
        clock.advance(settings.scheduler.leader_lease_seconds / 4)
    assert fake_redis.hget(Keys("test").leader, "id") == b"me"
    first.resign()
    second.tick()
    assert second.leader.leads

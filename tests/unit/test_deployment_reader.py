"""What is read of a whole deployment: its server, its leader, its queues, the ids of its runs."""

from __future__ import annotations

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from fairlane.store.read.overview import DeploymentReader, LeaderView
from tests.support.deployment import FOREVER_MS, Deployment
from tests.support.stage import Stage


@pytest.fixture
def d(redis: Redis) -> Deployment:
    return Deployment(redis)


def reader(d: Deployment) -> DeploymentReader:
    return DeploymentReader(d.redis, d.keys)


def test_the_leader_is_reported_with_its_epoch_and_lease(d: Deployment) -> None:
    assert reader(d).leader() == LeaderView("scheduler-1", 1, d.now_ms + FOREVER_MS)
    d.leader("scheduler-1").resign()
    assert reader(d).leader() == LeaderView("scheduler-1", 1, 0)


def test_where_nobody_has_ever_led_there_is_no_leader(d: Deployment) -> None:
    d.redis.delete(d.keys.leader)
    assert reader(d).leader() is None


def test_ready_jobs_are_counted_by_lane_over_all_runs(d: Deployment) -> None:
    first = d.queued_lane(jobs=4, lane="sim:fast", run="r1")
    d.queued_lane(jobs=3, lane="sim:fast", run="r2")
    d.queued_lane(jobs=2, lane="sim:slow", run="r3")
    d.take(first, 1)
    assert reader(d).queued() == {"sim:fast": 6, "sim:slow": 2}


def test_where_nothing_runs_nothing_is_queued(d: Deployment) -> None:
    assert reader(d).queued() == {}


def test_ids_are_those_of_admitted_and_of_waiting_runs_of_the_team(redis: Redis) -> None:
    stage = Stage(redis)
    submit = stage.client.submit
    admitted = submit([{"q": 1}], "{{ q }}", model="sim:fast").id
    stage.client_of("other").submit([{"q": 1}], "{{ q }}", model="sim:fast")
    stage.admit()
    waiting = submit([{"q": 1}], "{{ q }}", model="sim:fast")
    waiting.cancel()
    redis.rpush(stage.keys.inbox("search"), "no request")
    found = DeploymentReader(redis, stage.keys).run_ids("search")
    assert found == sorted([admitted, waiting.id])


def test_a_server_reports_what_it_keeps_and_what_it_evicts(real_redis: Redis) -> None:
    found = reader(Deployment(real_redis)).server()
    assert found is not None
    assert found.program in ("Redis", "Valkey")
    assert found.version[0].isdigit()
    assert (found.append_only, found.append_failed, found.replica) == (False, False, False)
    assert (found.eviction, found.memory_limit) == ("noeviction", 0)
    assert found.memory_used > 0


def test_a_server_that_refuses_info_is_not_known(real_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ResponseError("NOPERM this user has no permissions to run the 'info' command")

    monkeypatch.setattr(real_redis, "info", refuse)
    assert reader(Deployment(real_redis)).server() is None


@pytest.mark.parametrize(
    ("name", "bad", "good", "words"),
    [
        ("min-replicas-to-write", "1", "0", "fewer replicas than its min-replicas-to-write"),
        ("maxmemory", "1", "0", "Redis is full"),
    ],
)
def test_a_server_that_takes_no_writes_is_found_out(
    real_redis: Redis, name: str, bad: str, good: str, words: str
) -> None:
    deployment = reader(Deployment(real_redis))
    real_redis.config_set(name, bad)
    try:
        found = deployment.server()
    finally:
        real_redis.config_set(name, good)
    assert found is not None
    assert found.refusing is not None
    assert words in found.refusing.problem
    sound = deployment.server()
    assert sound is not None
    assert sound.refusing is None


def test_a_read_only_user_does_not_test_writes(real_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise NoPermissionError("this user has no permissions to run the 'unlink' command")

    monkeypatch.setattr(real_redis, "unlink", refuse)
    found = reader(Deployment(real_redis)).server()
    assert found is not None
    assert found.refusing is None

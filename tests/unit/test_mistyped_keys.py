"""A key whose type somebody has changed is named, with the remedy, and all goes on once it is deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from redis import Redis
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from fairlane.model.run import RunRef
from fairlane.store.connection.server_states import RETYPED, refusing_state
from fairlane.store.keys import Keys
from fairlane.store.read import mistyped as room
from fairlane.store.read.mistyped import Mistyped, mistyped, named
from fairlane_scheduler.monitoring.serving import SchedulerHealth
from fairlane_scheduler.runner import Runner
from fairlane_scheduler.upkeep.shared_keys import SharedKeys
from fairlane_workers.intake.lane_queues import BrokerRefuses, LaneWorkerConsumer
from tests.support.command_line import CommandLine
from tests.support.scheduling import Cluster

REF, LANE = RunRef("search", "r1"), "sim:fast"
KEYS = Keys("test")
OWNED = {
    **{getattr(KEYS, name): kind for name, kind in room.OF_DEPLOYMENT.items()},
    **{getattr(KEYS, name)(LANE): kind for name, kind in room.OF_LANE.items()},
    **{getattr(KEYS, name)("search"): kind for name, kind in room.OF_TEAM.items()},
    **{getattr(KEYS, name)(REF): kind for name, kind in room.OF_RUN.items()},
    KEYS.headroom(LANE, "tokens"): "list",
    KEYS.hot(REF, LANE): "list",
    KEYS.fresh(REF, LANE): "list",
    **room.OF_BROKER,
    "_kombu.binding.celery.pidbox": "set",
    "fairlane.lane.sim:fast": "list",
}
OF_TEAMS_AND_TIME = {
    "inbox",
    "spec",
    "rows",
    "client_scores",
    "chunks",
    "answer",
    "history",
    "headroom",
    "hot",
    "fresh",
}


def retype(redis: Redis, key: str, wanted: str) -> str:
    redis.delete(key)
    if wanted == "string":
        redis.rpush(key, "x")
        return "list"
    redis.set(key, "x")
    return "string"


def test_each_key_has_its_type_here() -> None:
    assert set(vars(KEYS)) - {"prefix", "wake", "control"} == set(room.OF_DEPLOYMENT)
    made = {name for name, each in vars(Keys).items() if callable(each) and not name.startswith("_")}
    assert made - OF_TEAMS_AND_TIME == {*room.OF_LANE, *room.OF_TEAM, *room.OF_RUN}


@pytest.mark.parametrize("options", [{}, {"judges": ["sim:judge"]}, {"bounds": {"budget_tokens": 10**6}}])
def test_no_key_of_a_run_that_goes_on_is_taken_for_another(
    real_redis: Redis, options: dict[str, Any]
) -> None:
    cluster = Cluster(real_redis)
    ref = cluster.submit(300, **options)
    for _ in range(4):
        cluster.run_for(0.6)
        assert mistyped(real_redis, cluster.keys) == []
    cluster.run_until_finished(ref)
    assert mistyped(real_redis, cluster.keys) == []


@pytest.mark.parametrize("key", OWNED)
def test_a_key_of_another_type_is_named(real_redis: Redis, key: str) -> None:
    real_redis.sadd(KEYS.lanes, LANE)
    real_redis.sadd(KEYS.teams, "search")
    real_redis.sadd(KEYS.active, str(REF))
    real_redis.sadd(KEYS.run_lanes(REF), LANE)
    found = retype(real_redis, key, OWNED[key])
    assert mistyped(real_redis, KEYS) == [Mistyped(key, found, OWNED[key])]


@pytest.mark.parametrize("key", [key for key in OWNED if not key.startswith("unacked")])
def test_commands_name_it_and_show_no_traceback(real_redis: Redis, key: str) -> None:
    cli = CommandLine(real_redis)
    run = cli.submitted(rows=2)
    wanted, key = OWNED[key], key.replace(":r1:", f":{run}:")
    retype(real_redis, key, wanted)
    for command in (("doctor",), ("why", run), ("status", run), ("runs",), ("lanes",), ("workers",)):
        result = cli(*command)
        assert result.exception is None or isinstance(result.exception, SystemExit), command
        said = "".join(result.output.split())
        assert command != ("doctor",) or f"redis-cliDEL'{key}'" in said
        if result.exit_code == 1:
            assert key in said, command


def test_a_key_that_stops_the_scheduler_alone_is_why_a_run_waits(real_redis: Redis) -> None:
    cli = CommandLine(real_redis)
    run = cli.submitted(rows=2)
    real_redis.hset(cli.stage.keys.leader, "until_ms", 10**15)
    retype(real_redis, cli.stage.keys.dirty, "set")
    assert f"somebodymadethekey{cli.stage.keys.dirty}astring" in "".join(cli.out("why", run).split())


@pytest.mark.parametrize("part", [*room.OF_RUN, "hot", "fresh"])
def test_a_key_of_a_run_is_why_that_run_waits(real_redis: Redis, part: str) -> None:
    cli = CommandLine(real_redis)
    ref, keys = RunRef("search", cli.submitted(rows=2)), cli.stage.keys
    real_redis.hset(keys.leader, "until_ms", 10**15)
    key = getattr(keys, part)(ref, *([LANE] if part in ("hot", "fresh") else []))
    retype(real_redis, key, {**room.OF_RUN, "hot": "list", "fresh": "list"}[part])
    asked = cli("why", ref.run)
    assert f"redis-cliDEL'{key}'" in "".join(asked.output.split())


def test_a_leader_that_may_not_delete_one_names_it_and_goes_on_once_it_is_deleted(
    real_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SharedKeys, "discard", lambda *_, **__: False)
    cluster = Cluster(real_redis)
    ref = cluster.submit(10)
    cluster.run_for(0.1)
    (process,) = cluster.processes
    delayed = cluster.keys.delayed
    retype(real_redis, delayed, "zset")

    class Watch:
        failed_with: str = ""

        def pass_began(self) -> None: ...
        def pass_succeeded(self, seconds: float) -> None: ...
        def pass_failed(self, why: str) -> None:
            self.failed_with = why
            runner.stop()

    runner = Runner(process.scheduler, real_redis, cluster.clock, cast(SchedulerHealth, watch := Watch()))
    with capture_logs() as logs:
        runner.run()
    assert "of another type" in watch.failed_with
    said = [line["error"] for line in logs if line["event"] == "store_unreachable"]
    assert said
    assert all(f"somebody made the key {delayed} a string, and it is to be a zset" in each for each in said)

    real_redis.delete(delayed)
    cluster.run_until_finished(ref, limit_s=120)


@pytest.mark.parametrize(
    "text",
    [
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "WRONGTYPE Operation against a key holding the wrong kind of value script: 12ab, on @user_script:3.",
        "ERR Error running script (call to f_1): @user_script:3: WRONGTYPE Operation against a key",
        "Command # 1 (LPUSH k v) of pipeline caused error: WRONGTYPE Operation against a key",
    ],
)
def test_it_is_recognised_in_all_that_a_server_says(text: str) -> None:
    assert refusing_state(ResponseError(text)) is RETYPED


def test_where_the_key_is_not_found_the_doctor_is_named() -> None:
    def denied() -> list[Mistyped]:
        raise ResponseError("NOPERM")

    error = ResponseError("WRONGTYPE Operation")
    assert named(error, denied) is named(error, list) is RETYPED
    assert "`fairlane doctor` names" in str(RETYPED)
    assert named(ResponseError("ERR no"), denied) is None


def test_a_worker_waits_for_a_broker_of_which_a_key_has_another_type(
    real_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery would end the process."""
    real_redis.set("_kombu.binding.celery.pidbox", "x")

    def bind(*_: object) -> None:
        real_redis.smembers("_kombu.binding.celery.pidbox")

    class Parent:
        class connection:  # noqa: N801
            class default_channel:  # noqa: N801
                client = real_redis

    blueprint = LaneWorkerConsumer.Blueprint()
    start: Callable[..., None] = bind
    monkeypatch.setattr(LaneWorkerConsumer.Blueprint.__mro__[1], "start", start)
    with pytest.raises(BrokerRefuses, match=r"key _kombu\.binding\.celery\.pidbox a string.*redis-cli DEL"):
        blueprint.start(Parent())

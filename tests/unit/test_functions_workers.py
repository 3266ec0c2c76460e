"""Which workers take functions: the lanes that they serve, what they report, and what they may get."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import fakeredis
import pytest
from celery import Celery

from fairlane.config.loader import load_settings
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError
from fairlane.store.keys import Keys
from fairlane_workers.bridge import Bridge, serve
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.functions.catalog import AppTasks
from fairlane_workers.upkeep.heartbeat import OtherWorkers
from tests.support.worker_parts import WorkerParts, on_loop

LANE = "python:crm-api"
KEYS = Keys("test")


async def wanted(parts: WorkerParts) -> list[str]:
    for lane in ("sim:fast", LANE, "python:evals.style:brevity"):
        parts.scheduler.registry.ensure(lane)
    await parts.heartbeat.beat()
    return parts.wanted[-1]


def test_a_worker_that_allows_nothing_wants_no_functions_lanes() -> None:
    async def scene(parts: WorkerParts) -> None:
        assert await wanted(parts) == ["sim:fast"]

    on_loop(scene)
    on_loop(scene, lanes=("sim:*", "python:*"))


def test_a_worker_that_allows_modules_wants_functions_lanes_unless_it_is_bound_to_others() -> None:
    async def free(parts: WorkerParts) -> None:
        assert await wanted(parts) == [LANE, "python:evals.style:brevity", "sim:fast"]

    async def bound(parts: WorkerParts) -> None:
        assert await wanted(parts) == [LANE]

    on_loop(free, modules=("evals",))
    on_loop(bound, modules=("evals",), lanes=(LANE,))


def beat(worker: str, lanes: list[str], modules: list[str], *, stopping: bool = False) -> dict[str, str]:
    info = {
        "name": worker, "slots": 1, "lanes": lanes, "version": "0", "pid": 1, "host": "h", "started_ms": 0,
        "stopping": stopping, "modules": modules,
    }  # fmt: skip
    return {worker: f"1 {json.dumps(info)}"}


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (beat("w2", [LANE], ["crm"]), True),
        (beat("w2", [LANE], ["crm.tasks.fetch"]), True),
        (beat("w2", [LANE], ["crm"], stopping=True), False),
        (beat("w2", ["sim:fast"], ["crm"]), False),
        (beat("w2", [LANE], ["evals"]), False),
        (beat("w1", [LANE], ["crm"]), False),
        ({}, False),
    ],
)
def test_another_worker_runs_a_function_if_it_serves_the_lane_and_claims_it(
    other: dict[str, str], expected: bool
) -> None:
    async def ask() -> bool:
        redis: Any = fakeredis.FakeAsyncRedis()
        if other:
            await redis.hset(KEYS.workers, mapping=other)
        found = await OtherWorkers(Batcher(redis), KEYS, "w1").runs("crm.tasks.fetch", LANE)
        await redis.aclose()
        return found

    assert asyncio.run(ask()) is expected


def test_a_beat_of_a_version_without_modules_is_read() -> None:
    async def ask() -> bool:
        redis: Any = fakeredis.FakeAsyncRedis()
        old = beat("w2", [LANE], [])
        stamp, _, text = old["w2"].partition(" ")
        info = json.loads(text)
        del info["modules"]
        await redis.hset(KEYS.workers, mapping={"w2": f"{stamp} {json.dumps(info)}"})
        found = await OtherWorkers(Batcher(redis), KEYS, "w1").runs("crm.tasks.fetch", LANE)
        await redis.aclose()
        return found

    assert asyncio.run(ask()) is False


def test_lanes_of_functions_need_no_connection_and_their_name_is_reserved() -> None:
    lanes: dict[str, Any] = {LANE: {"requests_per_minute": 60}}
    assert (
        load_settings(environ={}, lanes=lanes, worker={"lanes": ["python:*"]}).lanes[LANE].requests_per_minute
        == 60
    )

    with pytest.raises(ConfigurationError, match="this name is reserved"):
        load_settings(environ={}, connections={"python": {"protocol": "openai", "base_url": "http://x/v1"}})


def test_an_application_sees_what_it_serves_in_words_that_make_sense() -> None:
    app = Celery("crm", set_as_current=False)

    with pytest.raises(ConfigurationError, match=r"Give \['crm-api'\]"):
        serve(app, "crm-api", settings=Settings())
    with pytest.raises(ConfigurationError, match="slots"):
        serve(app, ["crm-api"], slots=0, settings=Settings())


def test_an_application_that_names_no_lanes_serves_those_of_its_tasks() -> None:
    app = Celery("crm", set_as_current=False)

    @app.task(shared=False, name="crm.fetch")
    def fetch() -> None: ...

    own = Bridge(app, (), Settings())._own(AppTasks(app))
    assert (own.worker.lanes, own.worker.modules) == (("python:crm.fetch",), ("crm.fetch",))
    stated = Bridge(app, ("crm-api",), Settings())._own(AppTasks(app))
    assert (stated.worker.lanes, stated.connections) == ((LANE,), {})


def test_a_limit_set_before_a_lanes_first_use_is_not_replaced_by_the_default_of_endpoints() -> None:
    async def scene(parts: WorkerParts) -> None:
        scheduler = parts.scheduler
        scheduler.lanes.limit(LANE, {"max_concurrency": 3})

        for stated in ("crm-api", "erp-api"):
            scheduler.registry.ensure(scheduler.registry.lane_of("python:crm.tasks.fetch", stated))

        limits = [
            scheduler.redis.hmget(KEYS.limits(lane), "max_concurrency", "first_concurrency")
            for lane in (LANE, "python:erp-api")
        ]
        assert limits == [[b"3", None], [None, b"4"]]

    on_loop(scene)


def test_a_shutdown_while_an_operator_has_it_leave_waits_for_the_attempts() -> None:
    """The threads of both close it; the process must not end before the attempts have."""
    gate, begun, order = threading.Event(), threading.Event(), list[str]()

    def wait_for_attempts(_: float) -> None:
        begun.set()
        gate.wait(5)
        order.append("attempts")

    bridge = Bridge(Celery("theirs"), ["crm"], Settings())
    bridge._consumer = cast(Any, SimpleNamespace(close=wait_for_attempts, should_stop=True))
    bridge._engine = cast(Any, SimpleNamespace(close=lambda: order.append("engine")))
    leaving = threading.Thread(target=bridge.close)
    leaving.start()
    begun.wait(5)

    shutdown = threading.Thread(target=lambda: (bridge._shut_down(), order.append("shutdown")))
    shutdown.start()
    shutdown.join(0.1)
    gate.set()
    leaving.join(5)
    shutdown.join(5)

    assert order == ["attempts", "engine", "shutdown"]

"""The engine on a real Redis: a loop in a thread of its own, from the first beat to the goodbye."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.core.errors import ConfigurationError
from fairlane.model.job import Attempt, JobState
from fairlane.model.results import TaskResult
from fairlane.store.keys import Keys
from fairlane.store.write.permits import Offer
from fairlane.store.write.workers import Beat, Workers
from fairlane_workers import engine as engines
from fairlane_workers.engine import Engine
from fairlane_workers.providers import registry
from fairlane_workers.transport.pause import sleep
from fairlane_workers.upkeep.heartbeat import Heartbeat
from tests.support.scheduler_parts import Parts
from tests.support.wait import wait_until
from tests.support.worker_parts import ScriptedProvider

KEYS = Keys("test")


class Place:
    """An engine, and a scheduler's parts on the same Redis."""

    def __init__(self, redis: Redis, monkeypatch: pytest.MonkeyPatch, **worker: Any) -> None:
        self.redis, self.parts = redis, Parts(redis)
        self.providers: list[ScriptedProvider] = []
        monkeypatch.setattr(registry, "build_provider", self._provider)
        path = redis.connection_pool.connection_kwargs["path"]
        settings = Settings.model_validate(
            {
                "redis": {"url": f"unix://{path}?db=0", "deployment": "test"},
                "connections": {
                    name: {"protocol": "openai", "base_url": f"http://{name}.invalid/v1"}
                    for name in ("sim", "other")
                },
                "worker": {"slots": 5, "beat_seconds": 0.05} | worker,
            }
        )
        self.settings = settings
        self.engine = Engine(settings, WorkerSecrets(), "worker-1")

    def _provider(self, name: str, *_: Any, **__: Any) -> ScriptedProvider:
        provider = ScriptedProvider()
        if name == "sim":
            self.providers.append(provider)
        return provider

    def beats(self) -> list[Beat]:
        return Workers(KEYS).beats(self.redis)


@pytest.fixture
def place(real_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = Place(real_redis, monkeypatch, shutdown_grace_seconds=0)
    yield made
    made.engine.close()


def test_lanes_of_a_connection_that_cannot_be_used_are_left_to_other_workers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, *_: object, **__: object) -> ScriptedProvider:
        if name == "sim":
            raise ConfigurationError("connections.sim.ca_file", "/x", "cannot be read")
        return ScriptedProvider()

    monkeypatch.setattr(registry, "build_provider", fail)
    for lane in ("sim:fast", "other:fast"):
        place.parts.registry.ensure(lane)
    wanted: list[list[str]] = []
    monkeypatch.setattr(place.engine.queues, "want_only", wanted.append)

    place.engine.start()
    wait_until(place.beats)

    (beat,) = place.beats()
    assert beat.info.unusable == {"sim": "connections.sim.ca_file: cannot be read (got '/x')."}
    assert wanted[0] == ["other:fast"]


def test_an_engine_that_cannot_start_leaves_no_thread(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no process may be made")

    monkeypatch.setattr(engines, "open_pool", fail)

    with pytest.raises(OSError, match="no process"):
        place.engine.start()

    assert not [each for each in threading.enumerate() if each.name == "fairlane-engine"]


def test_a_started_engine_beats_and_a_closed_one_is_gone(place: Place) -> None:
    place.engine.start()
    (beat,) = wait_until(place.beats)
    assert (beat.worker, beat.info.name, beat.info.slots) == (place.engine.worker, "worker-1", 5)

    place.engine.close()

    assert place.beats() == []
    assert place.engine._loop.is_closed()
    place.engine.close()


def test_lanes_that_are_consumed_are_reported_to_the_scheduler(place: Place) -> None:
    place.engine.start()

    place.engine._on_subscribed(frozenset({"sim:fast"}))

    wait_until(lambda: place.beats() and place.beats()[0].info.lanes == ("sim:fast",))


def test_an_attempt_runs_on_the_engines_loop(place: Place) -> None:
    place.engine.start()
    run = place.parts.admit(1)
    place.parts.feed_all()
    (attempt,) = _granted(place)

    place.engine.start_attempt(attempt).result(10)

    stored = place.redis.hget(KEYS.results(run.ref), "0")
    assert TaskResult.from_json(stored).state is JobState.SUCCEEDED


def test_a_stop_requeues_calls_that_do_not_end_in_time(place: Place) -> None:
    place.engine.start()
    run = place.parts.admit(1)
    place.parts.feed_all()
    (attempt,) = _granted(place)
    (provider,) = place.providers
    provider.gate.clear()
    call = place.engine.start_attempt(attempt)
    asyncio.run_coroutine_threadsafe(provider.started.wait(), place.engine._loop).result(10)

    place.engine.begin_stop()
    call.result(10)

    assert provider.broken_off == 1
    assert place.redis.llen(KEYS.hot(run.ref, "sim:fast")) == 1
    wait_until(lambda: place.beats()[0].info.stopping)


def _granted(place: Place) -> list[Attempt]:
    parts = place.parts
    (run,) = parts.backlog.runs()
    grant = parts.lanes.grant(
        "sim:fast", parts.leader.epoch, [Offer(run.ref, 1)], room=1, max_in_flight=9, lease_ms=15_000,
        now_ms=parts.now_ms,
    )  # fmt: skip
    assert grant is not None
    return [Attempt(run.ref.run, run.ref.team, p.job, p.number, "sim:fast") for p in grant.permits]


def test_a_task_of_a_users_function_that_ends_the_process_does_not_end_the_loop(place: Place) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def scene() -> list[Any]:
        return await asyncio.gather(leave(), leave(), return_exceptions=True)

    place.engine.start()

    left = asyncio.run_coroutine_threadsafe(scene(), place.engine._loop).result(5)

    assert [type(each) for each in left] == [SystemExit, SystemExit]
    place.engine.close()
    assert place.engine._loop.is_closed()


def test_a_provider_that_cannot_be_closed_keeps_nothing_else_open(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise RuntimeError("a defect of another package")

    closed: list[str] = []
    place.engine.start()
    (provider,) = place.providers
    monkeypatch.setattr(provider, "aclose", fail)
    monkeypatch.setattr(place.engine._pool, "close", lambda: closed.append("pool"))

    place.engine.close()

    assert closed == ["pool"]
    assert place.engine._loop.is_closed()


def test_whatever_step_it_is_at_the_listening_ends(place: Place) -> None:
    """In Python 3.11, a cancellation while redis-py writes is swallowed."""

    async def scene(step: int) -> None:
        redis = engines._open_redis(place.settings)
        silent: Any = None
        heartbeat = Heartbeat(
            redis=redis,
            batcher=silent,
            keys=KEYS,
            executor=silent,
            settings=place.settings.worker,
            served=silent,
            lease_ms=15_000,
            worker="w1",
            info=silent,
            subscribe=silent,
        )
        listening = asyncio.create_task(heartbeat.listen())
        for _ in range(step):
            await sleep(0)
        async with asyncio.timeout(2):
            await engines.end_all([listening])
        await redis.aclose()

    for step in range(40):
        asyncio.run(scene(step))

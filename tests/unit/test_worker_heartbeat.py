"""The heartbeat: leases are kept, lost ones dropped, lanes served, cancellations heard."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from fairlane.model.run import RunRef
from fairlane.store.write.workers import Beat, WorkerRequest
from tests.support.worker_parts import WORKER, WorkerParts, on_loop


def registered(parts: WorkerParts) -> Beat:
    (beat,) = parts.scheduler.workers.beats(parts.scheduler.redis)
    return beat


def marks(parts: WorkerParts) -> set[bytes]:
    """What the scheduler was asked to look at; it has looked now."""
    shown: set[bytes] = parts.scheduler.redis.smembers(parts.keys.dirty)
    parts.scheduler.redis.delete(parts.keys.dirty)
    return shown


async def beats(
    parts: WorkerParts, monkeypatch: pytest.MonkeyPatch, count: int, *failures: Exception
) -> list[Any]:
    """Run the heartbeat for ``count`` beats, the first of which fail so; the lines that it logs."""
    beat, left, failing = parts.heartbeat.beat, [count], list(failures)
    done = asyncio.Event()

    async def counted() -> None:
        left[0] -= 1
        if left[0] <= 0:
            done.set()
        if failing:
            raise failing.pop(0)
        await beat()

    monkeypatch.setattr(parts.heartbeat, "beat", counted)
    with capture_logs() as logs:
        task = asyncio.create_task(parts.heartbeat.run())
        await done.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return logs


def test_a_beat_reports_who_the_worker_is_and_what_it_serves() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.heartbeat.subscribed(frozenset({"sim:slow", "sim:fast"}))
        await parts.heartbeat.beat()

        beat = registered(parts)
        assert (beat.worker, beat.info.name, beat.info.slots) == (WORKER, "worker-1", 10)
        assert beat.info.lanes == ("sim:fast", "sim:slow")
        assert marks(parts) == {b"*"}

    on_loop(scene)


def test_a_beat_without_news_wakes_nobody() -> None:
    async def scene(parts: WorkerParts) -> None:
        await parts.heartbeat.beat()
        marks(parts)

        (attempt,) = parts.grant(1)
        marks(parts)
        task = await parts.calling(attempt)
        await parts.heartbeat.beat()

        assert marks(parts) == set()
        assert registered(parts).info.busy == 1
        parts.provider.gate.set()
        await task

    on_loop(scene)


def test_every_lane_is_wanted_unless_the_worker_is_bound() -> None:
    async def free(parts: WorkerParts) -> None:
        for lane in ("sim:fast", "shared"):
            parts.scheduler.registry.ensure(lane)
        await parts.heartbeat.beat()
        assert parts.wanted == [["shared", "sim:fast"]]

    async def bound(parts: WorkerParts) -> None:
        for lane in ("sim:fast", "sim:slow", "simulated", "shared"):
            parts.scheduler.registry.ensure(lane)
        await parts.heartbeat.beat()
        assert parts.wanted == [["shared", "sim:fast", "sim:slow"]]

    on_loop(free)
    on_loop(bound, lanes=("sim:*", "shared"))


def test_held_leases_are_kept() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)
        parts.scheduler.redis.zadd(parts.keys.leases, {attempt.id: 1})

        await parts.heartbeat.beat()

        assert parts.scheduler.redis.zscore(parts.keys.leases, attempt.id) > 10_000
        parts.provider.gate.set()
        await task

    on_loop(scene)


def test_a_lease_that_is_lost_breaks_its_call_off() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)
        parts.scheduler.redis.hdel(parts.keys.leased, attempt.id)

        await parts.heartbeat.beat()
        await task

        assert parts.provider.broken_off == 1

    on_loop(scene)


def test_an_attempt_that_is_reported_while_the_beat_is_on_its_way_is_not_disturbed() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)
        parts.batcher.ask.clear()
        parts.batcher.asking.clear()
        beat = asyncio.create_task(parts.heartbeat.beat())
        await parts.batcher.asking.wait()
        parts.provider.gate.set()
        parts.batcher.ask.set()

        await asyncio.gather(beat, task)

        assert parts.task(attempt).output == "yes"

    on_loop(scene)


def test_a_change_of_lanes_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(parts: WorkerParts) -> None:
        beat, shown = parts.heartbeat.beat, asyncio.Event()

        async def watched() -> None:
            await beat()
            if registered(parts).info.lanes:
                shown.set()

        monkeypatch.setattr(parts.heartbeat, "beat", watched)
        task = asyncio.create_task(parts.heartbeat.run())
        parts.heartbeat.subscribed(frozenset({"sim:fast"}))
        await shown.wait()
        assert not parts.heartbeat._hurry.is_set(), "it would beat without a pause"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    # A beat that came by the clock alone would run into the time limit of the test.
    on_loop(scene, beat_seconds=30.0)


def test_a_worker_that_stops_says_so_and_reports_what_it_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)
        await parts.heartbeat.beat()
        marks(parts)
        parts.heartbeat.stopping()
        await parts.heartbeat.beat()
        assert (registered(parts).info.stopping, registered(parts).info.busy) == (True, 1)
        assert marks(parts) == {b"*"}

        parts.provider.gate.set()
        await task
        marks(parts)
        await parts.heartbeat.beat()

        assert registered(parts).info.busy == 0
        assert marks(parts) == {b"*"}, "a slot less in use is news while it stops"

    on_loop(scene)


def test_it_beats_faster_while_it_stops() -> None:
    async def scene(parts: WorkerParts) -> None:
        assert parts.heartbeat._interval_s == 30
        parts.heartbeat.stopping()
        assert parts.heartbeat._interval_s < 1

    on_loop(scene, beat_seconds=30.0)


def wished(parts: WorkerParts, wish: WorkerRequest) -> None:
    assert parts.scheduler.workers.ask(parts.scheduler.redis, WORKER, wish)


def test_a_worker_that_is_drained_finishes_what_it_has() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.heartbeat.subscribed(frozenset({"sim:fast"}))
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)
        await parts.heartbeat.beat()

        wished(parts, WorkerRequest.IDLE)
        await parts.heartbeat.beat()

        shown = registered(parts).info
        assert (shown.stopping, shown.draining, shown.drained, shown.busy) == (True, True, False, 1)
        assert parts.intake == [True]
        parts.heartbeat.subscribed(frozenset())
        await parts.heartbeat.beat()
        assert registered(parts).info.lanes == ("sim:fast",), "its call counts on its lane"
        parts.provider.gate.set()
        await task
        await parts.heartbeat.beat()
        assert registered(parts).info.drained
        assert parts.task(attempt).output == "yes"
        assert parts.ended == []

    on_loop(scene)


def test_a_worker_is_not_drained_while_it_still_consumes() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.heartbeat.subscribed(frozenset({"sim:fast"}))
        await parts.heartbeat.beat()
        wished(parts, WorkerRequest.IDLE)
        await parts.heartbeat.beat()
        assert not registered(parts).info.drained, "a message may be on its way"

        parts.heartbeat.subscribed(frozenset())
        await parts.heartbeat.beat()

        assert registered(parts).info.drained

    on_loop(scene)


def test_an_idle_worker_that_is_to_stop_ends_once() -> None:
    async def scene(parts: WorkerParts) -> None:
        await parts.heartbeat.beat()
        wished(parts, WorkerRequest.STOP)
        await parts.heartbeat.beat()
        await parts.heartbeat.beat()

        assert parts.ended == ["end"]

    on_loop(scene)


def test_a_drained_worker_works_again_when_asked() -> None:
    async def scene(parts: WorkerParts) -> None:
        await parts.heartbeat.beat()
        wished(parts, WorkerRequest.IDLE)
        await parts.heartbeat.beat()

        wished(parts, WorkerRequest.WORK)
        await parts.heartbeat.beat()
        parts.heartbeat.subscribed(frozenset({"sim:fast"}))
        await parts.heartbeat.beat()

        shown = registered(parts).info
        assert (shown.stopping, shown.draining, shown.drained) == (False, False, False)
        assert shown.lanes == ("sim:fast",)
        assert parts.intake[-1] is False

    on_loop(scene)


def test_a_drain_outlasts_a_redis_that_forgets_it() -> None:
    async def scene(parts: WorkerParts) -> None:
        await parts.heartbeat.beat()
        wished(parts, WorkerRequest.IDLE)
        await parts.heartbeat.beat()
        parts.scheduler.redis.delete(parts.keys.drains)

        await parts.heartbeat.beat()

        assert registered(parts).info.draining

    on_loop(scene)


def test_a_wish_of_a_later_version_takes_nothing_new() -> None:
    async def scene(parts: WorkerParts) -> None:
        await parts.heartbeat.beat()
        parts.scheduler.redis.hset(parts.keys.drains, WORKER, "tomorrow's")
        await parts.heartbeat.beat()
        assert registered(parts).info.draining

    on_loop(scene)


def test_a_process_that_ends_is_not_called_draining() -> None:
    async def scene(parts: WorkerParts) -> None:
        await parts.heartbeat.beat()
        wished(parts, WorkerRequest.IDLE)
        await parts.heartbeat.beat()
        parts.heartbeat.stopping()
        await parts.heartbeat.beat()
        shown = registered(parts).info
        assert (shown.stopping, shown.draining) == (True, False)

    on_loop(scene)


def test_a_drained_worker_beats_no_faster_than_others() -> None:
    async def scene(parts: WorkerParts) -> None:
        await parts.heartbeat.beat()
        wished(parts, WorkerRequest.IDLE)
        await parts.heartbeat.beat()
        assert parts.heartbeat._interval_s == 30

    on_loop(scene, beat_seconds=30.0)


def test_requests_to_a_worker_are_removed_when_it_leaves() -> None:
    async def scene(parts: WorkerParts) -> None:
        await parts.heartbeat.beat()
        wished(parts, WorkerRequest.IDLE)
        await parts.heartbeat.leave()
        assert not parts.scheduler.redis.exists(parts.keys.drains)
        assert not parts.scheduler.workers.ask(parts.scheduler.redis, WORKER, WorkerRequest.IDLE)

    on_loop(scene)


def test_a_drain_hurries_the_beat() -> None:
    async def scene(parts: WorkerParts) -> None:
        await parts.heartbeat.beat()
        ear = await listening(parts)

        wished(parts, WorkerRequest.IDLE)
        await parts.heartbeat._hurry.wait()
        await end(ear)

    on_loop(scene)


def test_a_worker_that_stops_while_redis_is_away_logs_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.heartbeat.stopping()
        logs = await beats(parts, monkeypatch, 3, RedisConnectionError("Redis is away"))

        assert [(line["event"], line["log_level"]) for line in logs] == [("store_unreachable", "warning")]

    on_loop(scene)


def test_a_beat_that_fails_does_not_end_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(parts: WorkerParts) -> None:
        logs = await beats(parts, monkeypatch, 4, ResponseError("NOPERM"), ZeroDivisionError())

        assert [line["event"] for line in logs] == ["heartbeat_failed", "heartbeat_failed"]
        assert registered(parts).worker == WORKER

    on_loop(scene, beat_seconds=0.001)


def test_leaving_removes_the_worker_and_reports_the_scheduler() -> None:
    async def scene(parts: WorkerParts) -> None:
        await parts.heartbeat.beat()
        marks(parts)

        await parts.heartbeat.leave()

        assert parts.scheduler.workers.beats(parts.scheduler.redis) == []
        assert marks(parts) == {b"*"}

    on_loop(scene)


async def listening(parts: WorkerParts) -> asyncio.Task[None]:
    """The heartbeat's ear, once it is subscribed."""
    task = asyncio.create_task(parts.heartbeat.listen())
    await parts.heartbeat._hurry.wait()
    parts.heartbeat._hurry.clear()
    return task


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_cancellation_breaks_the_runs_calls_off() -> None:
    async def scene(parts: WorkerParts) -> None:
        ear = await listening(parts)
        (attempt,) = parts.grant(1)
        call = await parts.calling(attempt)

        await parts.redis.publish(parts.keys.control, f"cancel:{RunRef('search', 'r1')}")
        await call

        assert parts.provider.broken_off == 1
        await end(ear)

    on_loop(scene)


def test_a_new_lane_hurries_the_beat() -> None:
    async def scene(parts: WorkerParts) -> None:
        ear = await listening(parts)

        parts.scheduler.registry.ensure("sim:new")
        await parts.heartbeat._hurry.wait()
        await end(ear)

    on_loop(scene)


def test_what_makes_no_sense_on_the_channel_is_passed_over() -> None:
    async def scene(parts: WorkerParts) -> None:
        ear = await listening(parts)
        for nonsense in (b"", b"\xff\xfe", b"cancel:", b"cancel:no/such/run", b"unknown"):
            await parts.redis.publish(parts.keys.control, nonsense)

        await parts.redis.publish(parts.keys.control, "lanes")
        await parts.heartbeat._hurry.wait()
        await end(ear)

    on_loop(scene)


def test_a_lost_connection_is_made_again_and_everything_looked_at() -> None:
    async def scene(parts: WorkerParts) -> None:
        pause = parts.heartbeat._pause

        async def come_back(seconds: float) -> None:
            await pause(seconds)
            parts.server.connected = True

        parts.heartbeat._pause = come_back
        parts.server.connected = False

        ear = await listening(parts)

        assert parts.pauses == [0.25]
        await end(ear)

    on_loop(scene)


def test_a_defect_while_listening_is_reported_and_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(parts: WorkerParts) -> None:
        ear = await listening(parts)
        fails = [ZeroDivisionError()]

        def broken(*_: Any) -> None:
            if fails:
                raise fails.pop()

        monkeypatch.setattr(parts.executor, "abort_run", broken)
        with capture_logs() as logs:
            await parts.redis.publish(parts.keys.control, "cancel:search/r1")
            await parts.heartbeat._hurry.wait()

        assert [line["event"] for line in logs] == ["listening_failed"]
        await end(ear)

    on_loop(scene)

"""The pool: attempts begin on the loop, their end reaches Celery, and stopping waits for what is in hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from kombu.serialization import dumps
from structlog.testing import capture_logs

from fairlane.broker.app import TASK_NAME
from fairlane.model.job import Attempt
from fairlane_workers.intake.loop_pool import GATHER_S, TaskPool

ATTEMPT = Attempt("r1", "search", 3, 2, "sim:fast")


class Pool:
    """A pool whose attempts end when a test says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[Attempt, Future[str]]] = []
        self.frees: list[Callable[[], None]] = []
        self.accepted: list[int] = []
        self.ends: list[Any] = []
        task = SimpleNamespace(start=self._start)
        self.pool = TaskPool(app=SimpleNamespace(tasks={TASK_NAME: task}))

    def _start(self, attempt: Attempt, free: Callable[[], None]) -> Future[str]:
        future: Future[str] = Future()
        self.frees.append(free)
        self.begun.append((attempt, future))
        return future

    def apply(self, message: Any = None, name: str = TASK_NAME) -> None:
        kwargs = ATTEMPT.to_message() if message is None else message
        content_type, encoding, body = dumps([[], kwargs, {}], serializer="json")
        self.pool.on_apply(
            print,
            (name, "id", {}, body, content_type, encoding),
            callback=self.ends.append,
            accept_callback=lambda pid, _: self.accepted.append(pid),
        )

    def succeed(self) -> list[int]:
        """End all attempts; how many ends Celery knew of after each."""
        known = []
        for _, future in self.begun:
            future.set_result("Success")
            known.append(len(self.ends))
        return known


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_an_attempt_begins_at_once_and_no_thread_waits_for_it(pool: Pool) -> None:
    pool.apply()
    pool.apply()

    assert [attempt for attempt, _ in pool.begun] == [ATTEMPT, ATTEMPT]
    assert len(pool.accepted) == 2
    assert pool.ends == []


def test_the_end_of_an_attempt_and_what_it_came_to_are_reported_to_celery(pool: Pool) -> None:
    pool.apply()

    pool.begun[0][1].set_result("RateLimited")

    ((failed, value, seconds),) = pool.ends
    assert (failed, value) == (0, "RateLimited")
    assert seconds >= 0


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, Callable[[], None]]]:
    """The timers that are set on the loop on which attempts end."""
    made: list[tuple[float, Callable[[], None]]] = []
    loop = SimpleNamespace(call_later=lambda seconds, action: made.append((seconds, action)))
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return made


def test_ends_reach_celery_together_while_slots_are_free(
    pool: Pool, timers: list[tuple[float, Callable[[], None]]]
) -> None:
    pool.pool.limit = 10
    for _ in range(3):
        pool.apply()
    assert pool.succeed() == [0, 0, 0]
    ((seconds, report),) = timers
    assert seconds == GATHER_S
    report()
    assert [end[:2] for end in pool.ends] == [(0, "Success")] * 3
    pool.pool.on_stop()


def test_an_end_reaches_celery_at_once_while_half_of_the_slots_are_taken(
    pool: Pool, timers: list[tuple[float, Callable[[], None]]]
) -> None:
    pool.pool.limit = 4
    for _ in range(3):
        pool.apply()
    assert pool.succeed() == [1, 2, 2]
    assert len(timers) == 1


def test_an_end_that_celery_cannot_take_keeps_back_no_other(
    pool: Pool, timers: list[tuple[float, Callable[[], None]]]
) -> None:
    class Refusing(list[Any]):
        def append(self, end: Any) -> None:
            super().append(end)
            if len(self) == 1:
                raise ConnectionError("gone")

    pool.ends, pool.pool.limit = Refusing(), 10
    for _ in range(2):
        pool.apply()
    pool.succeed()
    with capture_logs() as logs:
        timers[0][1]()
    assert len(pool.ends) == 2
    assert [line["event"] for line in logs] == ["slot_not_freed"]
    pool.pool.on_stop()


def test_ends_that_two_threads_report_reach_celery_once_each(
    pool: Pool, timers: list[tuple[float, Callable[[], None]]]
) -> None:
    pool.pool.limit = 1000
    for _ in range(200):
        pool.apply()
    pool.succeed()
    threads = [threading.Thread(target=timers[0][1]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert len(pool.ends) == 200
    pool.pool.on_stop()


def test_an_attempt_that_needs_no_slot_is_done_to_celery_once_and_is_waited_for_all_the_same(
    pool: Pool,
) -> None:
    pool.apply()

    pool.frees[0]()
    assert [end[:2] for end in pool.ends] == [(0, "Pending")]
    stopping = threading.Thread(target=pool.pool.on_stop)
    stopping.start()
    stopping.join(0.05)
    assert stopping.is_alive()

    pool.begun[0][1].set_result("Success")
    stopping.join(10)
    assert not stopping.is_alive()
    assert len(pool.ends) == 1


def test_what_celery_raises_when_a_slot_is_freed_does_not_reach_the_attempt(pool: Pool) -> None:
    class Refusing(list[Any]):
        def append(self, _: Any) -> None:
            raise ConnectionError("gone")

    pool.ends = Refusing()
    pool.apply()

    with capture_logs() as logs:
        pool.frees[0]()

    assert [line["event"] for line in logs] == ["slot_not_freed"]


def test_a_defect_is_reported_as_a_failure(pool: Pool) -> None:
    pool.apply()

    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0
    pool.begun[0][1].set_exception(caught.value)

    ((failed, info, _),) = pool.ends
    assert failed == 1
    assert isinstance(info.exception.exc, ZeroDivisionError)


def test_an_attempt_that_was_cancelled_with_its_loop_is_no_failure(pool: Pool) -> None:
    pool.apply()

    pool.begun[0][1].cancel()

    assert pool.ends[0][:2] == (0, None)


@pytest.mark.parametrize("message", [{}, {"run": "r1"}, [], "text", {"run": "r", "team": "t", "job": "x"}])
def test_a_message_that_names_no_attempt_fails_and_leaves_the_pool_idle(pool: Pool, message: Any) -> None:
    with capture_logs() as logs:
        pool.apply(message)

    assert pool.begun == []
    assert pool.ends[0][0] == 1
    assert [line["event"] for line in logs] == ["message_unreadable"]
    pool.pool.on_stop()


def test_stopping_waits_for_what_is_in_hand(pool: Pool) -> None:
    pool.apply()
    stopping = threading.Thread(target=pool.pool.on_stop)
    stopping.start()

    pool.begun[0][1].set_result("Success")
    stopping.join(10)

    assert not stopping.is_alive()


def test_celerys_own_tasks_run_beside_the_loop(pool: Pool) -> None:
    ran = threading.Event()
    pool.pool.on_apply(lambda *_: ran.set(), ("celery.ping",), callback=pool.ends.append)

    assert ran.wait(10)
    pool.pool.on_stop()
    assert pool.begun == []

"""Several attempts in one message: each arrives once, as a message of its own, on its own lane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu import Connection
from kombu.message import Message
from kombu.transport import memory
from structlog.testing import capture_logs

from fairlane.broker.app import TASK_NAME, queue_of
from fairlane.broker.bundle import HEADER, MOST, READS_BUNDLES
from fairlane.config.settings import Settings
from fairlane.model.job import Attempt
from fairlane.model.lane import FUNCTIONS
from fairlane.store.write.workers import Beat, WorkerInfo
from fairlane_scheduler.dispatch.publisher import Publisher
from fairlane_scheduler.dispatch.slots import Capacity
from fairlane_workers.intake.lane_queues import attempts_of

BROKER = "memory://"
LANES = ("sim:fast", "sim:slow")


def attempt(job: int, lane: str = LANES[0]) -> Attempt:
    return Attempt("r1", "search", job, 2, lane)


def publish(attempts: list[tuple[Attempt, int]]) -> None:
    memory.Transport.global_state.clear()
    memory.Channel.queues.clear()
    publisher = Publisher(Settings.model_validate({"celery": {"broker_url": BROKER}}))
    for one, together in attempts:
        publisher.publish(one, together)
    assert publisher.flush()
    publisher.close()


def messages(lane: str) -> Iterator[Message]:
    with Connection(BROKER) as connection, connection.channel() as channel:
        queue = queue_of(lane)(channel)
        queue.declare()
        while (message := queue.get()) is not None:
            yield message


def named(message: Message) -> Attempt:
    """The attempt that a message names: as Celery reads it, as its text has it, and as the pool takes it."""
    found = Attempt.from_message(message.payload[1])
    assert json.loads(message.body) == message.payload
    assert found == getattr(message.body, "attempt", found)
    return found


@given(st.lists(st.tuples(st.sampled_from(LANES), st.integers(1, MOST)), max_size=60))
def test_every_attempt_arrives_once_and_in_the_order_of_its_lane(drawn: list[tuple[str, int]]) -> None:
    sent = [(attempt(job, lane), together) for job, (lane, together) in enumerate(drawn)]
    publish(sent)
    for lane in LANES:
        arrived = list[Attempt]()
        for message in messages(lane):
            together = [named(one) for one in attempts_of(message)]
            assert len(together) <= min(most for one, most in sent if one in together)
            arrived += together
        assert arrived == [one for one, _ in sent if one.lane == lane]


def test_each_attempt_is_a_task_of_its_own_that_is_counted_and_acknowledged_by_itself() -> None:
    publish([(attempt(job), MOST) for job in range(3)])
    with Connection(BROKER) as connection, connection.channel() as channel:
        queue = queue_of(LANES[0])(channel)
        queue.declare()
        message = queue.get()
        assert message is not None
        assert queue.get() is None
        unpacked = attempts_of(message)
        assert [one.headers["id"] for one in unpacked] == [attempt(job).id for job in range(3)]
        assert {one.headers["task"] for one in unpacked} == {TASK_NAME}
        assert [one.headers["kwargsrepr"].split()[1] for one in unpacked] == ["job=0", "job=1", "job=2"]
        assert not any(HEADER in one.headers for one in unpacked)
        channel.qos.prefetch_count = 3
        for left in (3, 2, 1):
            assert channel.qos.can_consume() == (left < 3)
            unpacked[left - 1].ack()


@pytest.mark.parametrize("header", [7, [{}], [{"run": 1}], "x", [None]])
def test_a_list_of_attempts_that_is_unreadable_costs_only_itself(header: object) -> None:
    publish([(attempt(1), 1)])
    (message,) = messages(LANES[0])
    message.headers[HEADER] = header
    with capture_logs() as logs:
        assert [named(one) for one in attempts_of(message)] == [attempt(1)]
    assert [line["event"] for line in logs] == ["message_unreadable"]


def test_attempts_of_a_later_version_stay_of_that_version() -> None:
    later = [replace(attempt(job), version=7) for job in range(3)]
    publish([(one, MOST) for one in later])
    (message,) = messages(LANES[0])
    assert [named(one).version for one in attempts_of(message)] == [7, 7, 7]


def worker(name: str, lanes: tuple[str, ...], reads: int = READS_BUNDLES, slots: int = 16) -> Beat:
    info = WorkerInfo(name, slots, lanes, "1", 1, "host", 0, messages=reads)
    return Beat(name, 0, info)


@pytest.mark.parametrize(
    ("permits", "workers", "together"),
    [(1, 1, 1), (3, 1, 1), (4, 1, 2), (40, 1, MOST), (4, 2, 1), (12, 2, 3), (200, 2, MOST), (200, 50, 2)],
)
def test_each_worker_gets_two_messages_of_a_grant(permits: int, workers: int, together: int) -> None:
    capacity = Capacity()
    capacity.update([worker(f"w{n}", (LANES[0],)) for n in range(workers)])
    assert capacity.bundle(LANES[0], permits) == together


@pytest.mark.parametrize(("slots", "together"), [(1, 1), (31, 1), (32, 2), (100, 6), (1000, MOST)])
def test_a_message_may_fill_a_small_part_of_a_workers_slots(slots: int, together: int) -> None:
    capacity = Capacity()
    capacity.update([worker(f"w{n}", (LANES[0],), slots=slots) for n in range(3)])
    assert capacity.bundle(LANES[0], permits=1) == together


def test_attempts_go_alone_to_older_workers_to_functions_and_where_nobody_serves_the_lane() -> None:
    capacity = Capacity()
    functions = f"{FUNCTIONS}:"
    capacity.update([worker("new", (*LANES, functions)), worker("old", LANES[1:], reads=READS_BUNDLES - 1)])
    assert [capacity.bundle(lane, 100) for lane in (*LANES, functions, "sim:none")] == [MOST, 1, 1, 1]

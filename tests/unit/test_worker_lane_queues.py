"""Queues of lanes: consumed as lanes appear, on the consumer's own thread, and again after a reconnection."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kombu import Connection
from kombu.exceptions import OperationalError

from fairlane.broker.app import IDLE_QUEUE, make_app
from fairlane.config.settings import Settings
from fairlane.model.lane import queue_name
from fairlane_workers.intake.lane_queues import (
    POLL_S,
    RECONNECT_S,
    SETTLED_POLL_S,
    SETTLED_S,
    LaneQueues,
    consumer_step,
    hurried,
)


class Consumer:
    """As much of Celery's consumer as lane queues touch; ``run`` is its thread's turn."""

    def __init__(self, before: Consumer | None = None) -> None:
        """``before``: the one whose connection was lost. Celery consumes what that one consumed."""
        settings = Settings.model_validate({"celery": {"broker_url": "memory://"}})
        self.app = before.app if before is not None else make_app(settings, "test")
        self.channel = SimpleNamespace(do_restore=True)
        self.task_consumer: Any = SimpleNamespace(
            channel=self.channel, consuming_from=lambda queue: queue in self.consumed
        )
        self.consumed = [name for name in self.app.amqp.queues.consume_from if name != IDLE_QUEUE]
        self.soon: list[Callable[[], None]] = []
        self.refuses = 0
        self.later: list[Callable[[], None]] = []
        self.timer = SimpleNamespace(call_after=self.call_after)

    def call_after(self, seconds: float, action: Callable[[], None]) -> None:
        (self.soon if seconds < SETTLED_S else self.later).append(action)

    def call_soon(self, action: Callable[[], None]) -> None:
        self.soon.append(action)

    def add_task_queue(self, queue: str) -> None:
        assert queue in self.app.amqp.queues, "Celery would make up a queue of its own"
        if self.refuses:
            self.refuses -= 1
            raise ConnectionResetError
        self.app.amqp.queues.select_add(self.app.amqp.queues[queue])
        self.consumed.append(queue)

    def cancel_task_queue(self, queue: str) -> None:
        self.app.amqp.queues.deselect(queue)
        self.consumed.remove(queue)

    def run(self) -> None:
        actions, self.soon = self.soon, []
        for action in actions:
            action()


def attach(queues: LaneQueues, consumer: Consumer) -> None:
    """It starts, and has its first turn."""
    queues.attach(consumer)
    consumer.run()


@pytest.fixture
def announced() -> list[frozenset[str]]:
    return []


@pytest.fixture
def queues(announced: list[frozenset[str]]) -> LaneQueues:
    return LaneQueues(announced.append)


def test_lanes_wanted_before_the_consumer_is_there_are_consumed_when_it_starts(
    queues: LaneQueues, announced: list[frozenset[str]]
) -> None:
    consumer = Consumer()
    queues.want_only(["sim:a", "sim:b"])

    attach(queues, consumer)

    assert consumer.consumed == [queue_name("sim:a"), queue_name("sim:b")]
    assert announced == [frozenset({"sim:a", "sim:b"})]


def test_a_lane_that_appears_is_consumed_on_the_consumers_own_thread(
    queues: LaneQueues, announced: list[frozenset[str]]
) -> None:
    consumer = Consumer()
    attach(queues, consumer)

    queues.want_only(["sim:new"])
    assert consumer.consumed == []
    consumer.run()

    assert consumer.consumed == [queue_name("sim:new")]
    assert announced == [frozenset({"sim:new"})]


def test_what_is_consumed_already_is_left_alone(queues: LaneQueues, announced: list[frozenset[str]]) -> None:
    consumer = Consumer()
    queues.want_only(["sim:a"])
    attach(queues, consumer)

    queues.want_only(["sim:a"])
    assert consumer.soon == []
    queues.want_only(["sim:a", "sim:b"])
    consumer.run()

    assert consumer.consumed == [queue_name("sim:a"), queue_name("sim:b")]
    assert announced[-1] == frozenset({"sim:a", "sim:b"})


def test_a_lane_that_is_forgotten_is_consumed_no_longer_until_it_is_back(
    queues: LaneQueues, announced: list[frozenset[str]]
) -> None:
    consumer = Consumer()
    queues.want_only(["sim:a", "sim:b"])
    attach(queues, consumer)

    queues.want_only(["sim:a", "sim:b"])
    assert consumer.soon == []
    queues.want_only(["sim:b"])
    consumer.run()
    assert (consumer.consumed, announced[-1]) == ([queue_name("sim:b")], frozenset({"sim:b"}))

    queues.want_only(["sim:a", "sim:b"])
    consumer.run()
    assert sorted(consumer.consumed) == [queue_name("sim:a"), queue_name("sim:b")]
    assert announced[-1] == frozenset({"sim:a", "sim:b"})


def test_a_held_worker_forgets_lanes_too(queues: LaneQueues) -> None:
    consumer = Consumer()
    queues.want_only(["sim:a", "sim:b"])
    attach(queues, consumer)
    queues.hold(True)
    consumer.run()
    queues.want_only(["sim:b"])
    queues.hold(False)
    consumer.run()
    assert consumer.consumed == [queue_name("sim:b")]


def test_after_a_reconnection_everything_is_consumed_again(
    queues: LaneQueues, announced: list[frozenset[str]]
) -> None:
    queues.want_only(["sim:a"])
    attach(queues, Consumer())
    queues.detach()
    assert announced[-1] == frozenset()
    queues.want_only(["sim:a", "sim:b"])

    again = Consumer()
    attach(queues, again)

    assert again.consumed == [queue_name("sim:a"), queue_name("sim:b")]
    assert announced[-1] == frozenset({"sim:a", "sim:b"})


def test_lanes_that_were_forgotten_while_the_broker_was_away_are_not_consumed_again(
    queues: LaneQueues, announced: list[frozenset[str]]
) -> None:
    before = Consumer()
    queues.want_only(["sim:a", "sim:b"])
    attach(queues, before)
    queues.detach()
    queues.want_only(["sim:b"])

    again = Consumer(before)
    queues.attach(again)
    assert again.consumed == [queue_name("sim:b")], "before the first message can come"
    again.run()
    assert (again.consumed, announced[-1]) == ([queue_name("sim:b")], frozenset({"sim:b"}))


def test_a_queue_that_could_not_be_consumed_is_tried_at_the_next_beat(queues: LaneQueues) -> None:
    consumer = Consumer()
    attach(queues, consumer)
    consumer.refuses = 1
    queues.want_only(["sim:a"])
    with pytest.raises(ConnectionResetError):
        consumer.run()

    queues.want_only(["sim:a"])
    consumer.run()

    assert consumer.consumed == [queue_name("sim:a")]


def test_a_consumer_that_is_gone_by_its_turn_is_not_touched(
    queues: LaneQueues, announced: list[frozenset[str]]
) -> None:
    consumer = Consumer()
    attach(queues, consumer)
    queues.want_only(["sim:a"])
    queues.detach()
    consumer.run()

    assert consumer.consumed == []


def test_a_held_worker_consumes_nothing_until_it_is_released(
    queues: LaneQueues, announced: list[frozenset[str]]
) -> None:
    consumer = Consumer()
    queues.want_only(["sim:a", "sim:b"])
    attach(queues, consumer)

    queues.hold(True)
    assert len(consumer.consumed) == 2, "only the consumer's own thread may touch it"
    consumer.run()
    assert (consumer.consumed, announced[-1]) == ([], frozenset())

    queues.want_only(["sim:a", "sim:b", "sim:new"])
    consumer.run()
    assert consumer.consumed == []

    queues.hold(False)
    consumer.run()
    assert consumer.consumed == [queue_name(lane) for lane in ("sim:a", "sim:b", "sim:new")]
    assert announced[-1] == frozenset({"sim:a", "sim:b", "sim:new"})


@pytest.mark.parametrize("away", [False, True])
def test_a_held_worker_that_reconnects_consumes_nothing(queues: LaneQueues, *, away: bool) -> None:
    before = Consumer()
    queues.want_only(["sim:a"])
    attach(queues, before)
    if away:
        queues.detach()
        queues.hold(True)
    else:
        queues.hold(True)
        queues.detach()

    again = Consumer(before)
    attach(queues, again)

    assert again.consumed == []
    queues.hold(False)
    again.run()
    assert again.consumed == [queue_name("sim:a")]


def test_what_is_held_already_is_left_alone(queues: LaneQueues) -> None:
    consumer = Consumer()
    attach(queues, consumer)
    queues.hold(True)
    queues.hold(True)
    assert len(consumer.soon) == 1


def test_lost_messages_are_left_to_the_leases(queues: LaneQueues) -> None:
    consumer = Consumer()
    attach(queues, consumer)

    assert consumer.channel.do_restore is False


def test_the_step_binds_the_queues_to_the_consumer_after_its_tasks(queues: LaneQueues) -> None:
    step_class: Any = consumer_step(queues)
    consumer = Consumer()
    step = step_class(consumer)
    queues.want_only(["sim:a"])

    step.start(consumer)
    assert consumer.consumed == [], "RabbitMQ would deliver before Celery takes messages"
    consumer.run()
    assert consumer.consumed == [queue_name("sim:a")]
    step.stop(consumer)
    queues.want_only(["sim:a", "sim:b"])

    assert consumer.soon == []
    assert "celery.worker.consumer.tasks:Tasks" in step_class.requires


def test_a_lane_is_reported_only_once_a_poll_watches_its_queue(
    queues: LaneQueues, announced: list[frozenset[str]]
) -> None:
    consumer = Consumer()
    attach(queues, consumer)
    consumer.channel._in_poll, consumer.channel._brpop_sent_at = True, time.monotonic()
    queues.want_only(["sim:a"])
    consumer.run()
    consumer.run()
    assert consumer.consumed == [queue_name("sim:a")]
    assert announced == []

    consumer.channel._brpop_sent_at = time.monotonic()
    consumer.run()

    assert announced == [frozenset({"sim:a"})]


def test_a_lane_that_is_left_is_reported_at_once(queues: LaneQueues, announced: list[frozenset[str]]) -> None:
    consumer = Consumer()
    queues.want_only(["sim:a"])
    attach(queues, consumer)
    consumer.channel._in_poll, consumer.channel._brpop_sent_at = True, time.monotonic()
    queues.hold(True)
    consumer.run()
    assert announced == [frozenset({"sim:a"}), frozenset()]


def test_a_broker_that_is_back_is_found_within_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("kombu.utils.functional.sleep", waited.append)
    nobody = Connection("redis://127.0.0.1:1/0")
    with pytest.raises(OperationalError):
        hurried(nobody).ensure_connection(max_retries=20)
    assert sum(waited) / 20 <= RECONNECT_S <= 2


def test_redis_is_polled_often_enough_for_a_new_lane(queues: LaneQueues) -> None:
    consumer = Consumer()
    consumer.channel.brpop_timeout = 1
    attach(queues, consumer)
    assert consumer.channel.brpop_timeout == POLL_S


def test_redis_is_polled_less_once_the_lanes_stay_the_same_and_often_after_a_change(
    queues: LaneQueues,
) -> None:
    consumer = Consumer()
    consumer.channel.brpop_timeout = 1
    attach(queues, consumer)
    queues.want_only(["sim:a"])
    consumer.run()
    before, *now = consumer.later
    before()
    assert consumer.channel.brpop_timeout == POLL_S, "a lane has come since"
    for settle in now:
        settle()
    assert consumer.channel.brpop_timeout == SETTLED_POLL_S
    queues.want_only(["sim:a", "sim:b"])
    consumer.run()
    assert consumer.channel.brpop_timeout == POLL_S


def test_a_lost_connection_is_not_polled_less(queues: LaneQueues) -> None:
    lost, new = Consumer(), Consumer()
    lost.channel.brpop_timeout = new.channel.brpop_timeout = 1
    attach(queues, lost)
    queues.detach()
    attach(queues, new)
    for settle in lost.later:
        settle()
    assert new.channel.brpop_timeout == POLL_S


class Loop:
    """An event loop that stands still when a test says so."""

    def __init__(self) -> None:
        self.stands, self.put_backs = False, 0

    def stands_still(self) -> bool:
        return self.stands

    def put_back(self) -> None:
        self.put_backs += 1


def one_lane(announced: list[frozenset[str]]) -> tuple[LaneQueues, Loop, Consumer]:
    """The queue of one lane, which a consumer serves beside a loop."""
    loop, consumer = Loop(), Consumer()
    queues = LaneQueues(announced.append, loop)
    queues.want_only(["sim:a"])
    attach(queues, consumer)
    return queues, loop, consumer


def test_a_worker_whose_loop_stands_still_takes_no_messages_and_puts_back_what_waits(
    announced: list[frozenset[str]],
) -> None:
    queues, loop, consumer = one_lane(announced)
    consumer.run()
    assert consumer.consumed == [queue_name("sim:a")]

    loop.stands = True
    consumer.run()
    assert (consumer.consumed, loop.put_backs) == ([queue_name("sim:a")], 0), "it may have been suspended"
    consumer.run()
    assert (consumer.consumed, loop.put_backs, queues.listening) == ([], 1, False)
    assert announced[-1] == frozenset()
    queues.want_only(["sim:a", "sim:b"])
    consumer.run()
    assert (consumer.consumed, loop.put_backs) == ([], 2)

    loop.stands = False
    consumer.run()
    assert consumer.consumed == [queue_name("sim:a"), queue_name("sim:b")]
    assert (queues.listening, loop.put_backs) == (True, 2)


def test_a_worker_that_drains_takes_nothing_once_its_loop_turns_again(
    announced: list[frozenset[str]],
) -> None:
    queues, loop, consumer = one_lane(announced)
    queues.hold(True)
    for loop.stands in (True, True, True, False, False):
        consumer.run()
        assert consumer.consumed == []
    queues.hold(False)
    consumer.run()
    assert consumer.consumed == [queue_name("sim:a")]


def test_a_consumer_that_has_gone_looks_no_more(announced: list[frozenset[str]]) -> None:
    loop, before = Loop(), Consumer()
    queues = LaneQueues(announced.append, loop)
    attach(queues, before)
    queues.detach()
    loop.stands = True
    for _ in range(5):
        before.run()
    assert (before.soon, loop.put_backs) == ([], 0)


def test_the_loop_is_looked_at_again_although_the_broker_refused_its_queues(
    announced: list[frozenset[str]],
) -> None:
    queues, loop, consumer = one_lane(announced)
    loop.stands = True
    for _ in range(3):
        consumer.run()
    assert not queues.listening

    loop.stands, consumer.refuses = False, 1
    with pytest.raises(ConnectionResetError):  # Celery's timer logs what a broker without memory refuses
        consumer.run()
    loop.stands = True
    for _ in range(3):
        consumer.run()

    assert not queues.listening, "nobody looks whether the loop turns"

"""The consumer beside another application's worker: a message is acknowledged once, when its slot is free."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Reject

from fairlane.broker.app import TASK_NAME
from fairlane.config.settings import Settings
from fairlane.model.job import Attempt
from fairlane_workers.intake.lane_consumer import LaneConsumer
from fairlane_workers.intake.lane_queues import LaneQueues

ATTEMPT = Attempt("r1", "search", 3, 2, "python")


class Message:
    """A message as kombu hands it over; acknowledging it twice is a defect."""

    headers = {"task": TASK_NAME, "id": "x"}  # noqa: RUF012

    def __init__(self) -> None:
        self.acknowledged = self.requeued = False

    def decode(self) -> Any:
        return [[], ATTEMPT.to_message(), {}]

    def ack(self) -> None:
        assert not self.acknowledged
        self.acknowledged = True

    def requeue(self) -> None:
        self.ack()
        self.requeued = True


class Place:
    """A consumer whose attempts end when a test says so, and which works when the test asks it to."""

    def __init__(self) -> None:
        self.future: Future[str] = Future()
        self.frees: list[Callable[[], None]] = []
        settings = Settings.model_validate({"celery": {"broker_url": "memory://"}})
        self.consumer: Any = LaneConsumer(settings, LaneQueues(lambda _: None), self._start)
        self.consumer.task_consumer = SimpleNamespace()
        self.message: Any = Message()
        self.consumer._receive(self.message)

    def _start(self, attempt: Attempt, free: Callable[[], None]) -> Future[str]:
        assert attempt == ATTEMPT
        self.frees.append(free)
        return self.future


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_message_is_acknowledged_by_the_consumer_once_its_attempt_is_over(place: Place) -> None:
    place.consumer.on_iteration()
    assert not place.message.acknowledged
    place.future.set_result("Success")
    assert not place.message.acknowledged, "only the consumer's thread may use its connection"
    place.consumer.on_iteration()
    assert place.message.acknowledged


def test_one_whose_attempt_needs_no_slot_is_acknowledged_then_and_waited_for_all_the_same(
    place: Place,
) -> None:
    place.frees[0]()
    place.consumer.on_iteration()
    assert place.message.acknowledged
    assert place.consumer._in_hand == {place.future}
    place.future.set_result("Success")
    place.consumer.on_iteration()
    assert place.consumer._in_hand == set()


def test_one_of_a_connection_that_was_lost_is_left_alone(place: Place) -> None:
    place.consumer.task_consumer = SimpleNamespace()
    place.frees[0]()
    place.consumer.on_iteration()
    assert not place.message.acknowledged


def test_a_message_whose_attempt_the_loop_has_not_begun_goes_back(place: Place) -> None:
    place.future.set_exception(Reject("not begun", requeue=True))
    place.consumer.on_iteration()
    assert (place.message.requeued, place.consumer._in_hand) == (True, set())

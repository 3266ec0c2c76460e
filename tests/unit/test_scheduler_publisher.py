"""Handing over: attempts become Celery messages on their lane's queue, through every loss of the broker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import amqp
import pytest
from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.transport import memory, pyamqp
from redis import Redis
from structlog.testing import capture_logs

from fairlane.broker.app import TASK_NAME, queue_of
from fairlane.config.settings import Settings
from fairlane.embedded.server import EmbeddedRedis
from fairlane.model.job import Attempt
from fairlane.model.lane import queue_name
from fairlane_scheduler.dispatch.publisher import Publisher
from tests.support.lossy_proxy import lossy_proxy

BROKER = "memory://"


def attempt(job: int, lane: str = "sim:fast") -> Attempt:
    return Attempt("r1", "search", job, 2, lane)


@pytest.fixture
def publisher() -> Publisher:
    memory.Transport.global_state.clear()
    memory.Channel.queues.clear()
    return Publisher(Settings.model_validate({"celery": {"broker_url": BROKER}}))


def received(lane: str) -> list[Any]:
    """Every message on a lane's queue, oldest first."""
    with Connection(BROKER) as connection, connection.channel() as channel:
        queue = queue_of(lane)(channel)
        queue.declare()
        messages = []
        while (message := queue.get(no_ack=True)) is not None:
            messages.append(message)
        return messages


def fail(times: int, error: Exception) -> Any:
    """A channel's ``_put`` that fails ``times`` times."""
    left, put = [times], memory.Channel._put

    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise error
        return put(self, *args, **kwargs)

    return broken


def test_an_attempt_arrives_as_the_task_message_that_names_it(publisher: Publisher) -> None:
    publisher.publish(attempt(7))
    assert publisher.flush()

    (message,) = received("sim:fast")
    args, kwargs, _ = message.payload
    assert (args, Attempt.from_message(kwargs)) == ([], attempt(7))
    assert message.headers["task"] == TASK_NAME
    assert message.headers["id"] == attempt(7).id
    assert message.content_type == "application/json"


def test_what_was_sent_is_not_sent_again(publisher: Publisher) -> None:
    for job in range(3):
        publisher.publish(attempt(job))
        publisher.flush()

    assert [message.payload[1]["job"] for message in received("sim:fast")] == [0, 1, 2]


def test_what_is_shown_of_a_message_is_harmless(publisher: Publisher) -> None:
    publisher.publish(attempt(7))
    publisher.flush()

    (message,) = received("sim:fast")
    assert message.headers["argsrepr"] == "()"
    assert message.headers["kwargsrepr"] == "run=r1 job=7 attempt=2 team=search lane=sim:fast"
    assert set(json.loads(message.body)[1]) == {"v", "run", "team", "job", "number", "lane"}


def test_each_lane_has_its_queue_and_keeps_its_order(publisher: Publisher) -> None:
    for job in range(500):
        publisher.publish(attempt(job, ["sim:fast", "sim:slow", "odd lane|{x}"][job % 3]))
    assert publisher.flush()

    for index, lane in enumerate(["sim:fast", "sim:slow", "odd lane|{x}"]):
        jobs = [message.payload[1]["job"] for message in received(lane)]
        assert jobs == list(range(index, 500, 3))
    assert queue_name("odd lane|{x}") == "fairlane.lane.odd_lane__x_"


def test_with_nothing_to_send_no_connection_is_opened(publisher: Publisher) -> None:
    assert publisher.flush()
    assert publisher._producer is None


def test_a_broker_that_is_away_is_reported_once_and_what_waits_is_sent_later(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture_logs() as logs:
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "ensure_connection", _refused)
            publisher.publish(attempt(1))
            assert [publisher.connect(), publisher.flush(), publisher.flush()] == [False, False, False]
        publisher.publish(attempt(2))
        assert publisher.flush()

    assert [message.payload[1]["job"] for message in received("sim:fast")] == [1, 2]
    assert [line["event"] for line in logs] == ["store_unreachable", "store_back"]
    assert {line["store"] for line in logs} == {"broker"}


@pytest.mark.parametrize("refusal", [amqp.AccessRefused, amqp.NotAllowed, amqp.NotFound])
def test_a_rabbitmq_without_its_user_or_its_host_is_away(
    monkeypatch: pytest.MonkeyPatch, refusal: type[Exception]
) -> None:
    def refuse(_: pyamqp.Transport) -> None:
        raise refusal("it is gone")

    monkeypatch.setattr(pyamqp.Transport, "establish_connection", refuse)
    publisher = Publisher(Settings.model_validate({"celery": {"broker_url": "amqp://127.0.0.1:1//"}}))
    publisher.publish(attempt(1))

    with capture_logs() as logs:
        assert [publisher.connect(), publisher.flush()] == [False, False]

    assert [line["event"] for line in logs] == ["store_unreachable"]


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), OperationalError("gone")])
def test_a_connection_that_breaks_loses_nothing(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(memory.Channel, "_put", fail(1, error))
    for job in range(3):
        publisher.publish(attempt(job))

    assert not publisher.flush()
    assert publisher.flush()

    assert {message.payload[1]["job"] for message in received("sim:fast")} == {0, 1, 2}


def test_a_defect_is_not_taken_for_a_broker_that_is_away(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.Channel, "_put", fail(1, ZeroDivisionError()))
    publisher.publish(attempt(1))

    with pytest.raises(ZeroDivisionError):
        publisher.flush()


def test_a_queue_is_declared_once_a_connection(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    declared: list[str] = []
    declare = memory.Channel.queue_declare

    def counted(self: Any, queue: str | None = None, **kwargs: Any) -> Any:
        declared.append(str(queue))
        return declare(self, queue=queue, **kwargs)

    monkeypatch.setattr(memory.Channel, "queue_declare", counted)
    for job in range(3):
        publisher.publish(attempt(job))
        publisher.flush()
    assert declared == [queue_name("sim:fast")]

    publisher.close()
    publisher.publish(attempt(3))
    publisher.flush()
    assert len(declared) == 2


def test_of_several_nodes_the_next_is_taken_where_one_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    establish = memory.Transport.establish_connection

    def refusing(self: Any) -> Any:
        asked.append(self.client.hostname)
        if self.client.hostname != "three":
            raise ConnectionRefusedError
        return establish(self)

    monkeypatch.setattr(memory.Transport, "establish_connection", refusing)
    monkeypatch.setattr(memory.Transport, "connection_errors", (OSError,))
    nodes = "memory://one;memory://two;memory://three"

    assert Publisher(Settings.model_validate({"celery": {"broker_url": nodes}})).connect()
    assert asked == ["one", "two", "three"]

    asked.clear()
    away = "memory://one;memory://two"
    assert not Publisher(Settings.model_validate({"celery": {"broker_url": away}})).connect()
    assert asked == ["one", "two"], "each once: a leader must bid again in time"


@pytest.mark.slow(seconds=4)
def test_a_server_that_falls_silent_is_left_before_the_leader_loses_its_lease(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server, lossy_proxy(server.url) as proxy:
        settings = Settings.model_validate({"redis": {"url": proxy.url}})
        publisher = Publisher(settings)
        publisher.publish(attempt(1))
        assert publisher.flush()

        proxy.fall_silent()
        publisher.publish(attempt(2))
        began = time.monotonic()
        assert not publisher.flush()
        assert time.monotonic() - began < settings.scheduler.leader_lease_seconds

        assert publisher.flush(), "a new connection is answered"
        publisher.close()
        with Redis.from_url(server.url) as redis:
            assert redis.llen(queue_name("sim:fast")) == 2


def _refused(*_: Any, **__: Any) -> None:
    raise OperationalError("refused")

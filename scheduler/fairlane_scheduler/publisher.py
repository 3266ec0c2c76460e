"""Puts granted attempts on their lanes' Celery queues, a batch at a time."""

from __future__ import annotations

from kombu.messaging import Producer

from fairlane.broker import TASK_NAME, make_app, queue_of
from fairlane.job import Attempt
from fairlane.lane import queue_name
from fairlane.settings import Settings

BATCH = 200
CONNECT_TIMEOUT_S = 2.0  # a leader must bid again in time


class BrokerAway(Exception):
    """Celery's broker does not take messages."""


class Publisher:
    """Collects attempts and sends them together: the portable way to many thousand messages a second."""

    def __init__(self, settings: Settings) -> None:
        self._app = make_app(settings, "fairlane_scheduler")
        self._producer: Producer | None = None
        self._pending: list[Attempt] = []
        self._declared: set[str] = set()

    def publish(self, attempt: Attempt) -> None:
        """Take an attempt along; `flush` sends it."""
        self._pending.append(attempt)

    def flush(self) -> None:
        """Send what is pending. Raises `BrokerAway`, and then it stays pending.

        Some of it may be sent twice so, or too late: a worker's claim tells.
        """
        if not self._pending:
            return
        try:
            producer = self._connected()
            for lane in {attempt.lane for attempt in self._pending} - self._declared:
                queue_of(lane)(producer.channel).declare()
                self._declared.add(lane)
            with producer.batch(max_size=BATCH):
                for attempt in self._pending:
                    self._send(producer, attempt)
        except Exception as error:
            self.close()
            raise BrokerAway(str(error)) from error
        self._pending.clear()

    def close(self) -> None:
        """Drop the connection; the next `flush` opens another."""
        producer, self._producer = self._producer, None
        self._declared.clear()
        if producer is not None and producer.connection is not None:
            producer.connection.release()

    def _connected(self) -> Producer:
        if self._producer is None:
            connection = self._app.connection_for_write()
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_TIMEOUT_S)
            self._producer = Producer(connection, auto_declare=False)
        return self._producer

    def _send(self, producer: Producer, attempt: Attempt) -> None:
        message = self._app.amqp.as_task_v2(
            attempt.id, TASK_NAME, kwargs=attempt.to_message(), argsrepr="()", kwargsrepr=_shown(attempt)
        )
        producer.publish(
            message.body,
            exchange="",
            routing_key=queue_name(attempt.lane),
            serializer="json",
            headers=message.headers,
            delivery_mode=2,
            **message.properties,
        )


def _shown(attempt: Attempt) -> str:
    names = f"run={attempt.run} job={attempt.job} attempt={attempt.number}"
    return f"{names} team={attempt.team} lane={attempt.lane}"

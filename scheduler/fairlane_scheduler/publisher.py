"""Puts granted attempts on their lanes' Celery queues, a batch at a time."""

from __future__ import annotations

from kombu import Producer

from fairlane.broker import TASK_NAME, make_app, queue_of
from fairlane.job import Attempt
from fairlane.lane import queue_name
from fairlane.settings import Settings

BATCH = 200


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
        """Send what is pending. What cannot be sent is dropped: its leases lapse and its jobs go back."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        try:
            producer = self._connected()
            for lane in {attempt.lane for attempt in pending} - self._declared:
                queue_of(lane)(producer.channel).declare()
                self._declared.add(lane)
            with producer.batch(max_size=BATCH):
                for attempt in pending:
                    self._send(producer, attempt)
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Drop the connection; the next `flush` opens another."""
        producer, self._producer = self._producer, None
        self._declared.clear()
        if producer is not None:
            producer.connection.release()

    def _connected(self) -> Producer:
        if self._producer is None:
            connection = self._app.connection_for_write()
            connection.ensure_connection(max_retries=1)
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

"""Publishes granted attempts to their lanes' Celery queues, in batches."""

import select
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from kombu.connection import Connection
from kombu.exceptions import KombuError, OperationalError
from kombu.messaging import Producer

from fairlane.broker import bundle
from fairlane.broker.app import TASK_NAME, make_app, queue_of, reach
from fairlane.config.settings import Settings
from fairlane.core.events import Event
from fairlane.model.job import Attempt
from fairlane.model.lane import queue_name
from fairlane.store.connection.tls_errors import in_words
from fairlane.telemetry.logs import get_logger

BATCH = 200
CONNECT_TIMEOUT_S = 1.0  # shorter than the leader's lease, which must be renewed in time
AMQP = "amqp"
AMQP_TIMEOUT_S = 2.0  # for each read and write

log = get_logger("publisher")


class Handover(Protocol):
    """Takes granted attempts to the workers; `Publisher` implements it."""

    def connect(self) -> bool:
        """Whether an attempt that is granted now can be sent at once."""
        ...

    def publish(self, attempt: Attempt, together: int = 1) -> None:
        """Collect an attempt for `flush`, in a message of at most ``together`` attempts of its lane."""
        ...

    def flush(self) -> bool:
        """Send what was collected; false if some of it could not be sent yet."""
        ...

    def close(self) -> None:
        """Close connections; `connect` opens another."""
        ...


class Publisher:
    """Collects attempts and sends them together, which every broker can do at thousands of messages a second.

    If the broker is away, `connect` returns false and the dispatcher grants nothing.
    """

    def __init__(self, settings: Settings) -> None:
        self._app = make_app(settings, "fairlane_scheduler")
        self._producer: Producer | None = None
        self._pending: list[tuple[Attempt, int]] = []
        self._declared: set[str] = set()
        self._unreachable = False
        self._blocked_reason: str | None = None

    def connect(self) -> bool:
        """Whether the broker is reachable, so that an attempt that is granted now can be sent at once."""
        if self._producer is not None and self._still_open(self._producer):
            return self._blocked_reason is None
        connection = self._open()
        try:
            reach(connection, CONNECT_TIMEOUT_S)
        except _faults(connection) as error:
            connection.release()
            self._note_unreachable(error)
            return False
        self._producer = Producer(connection, auto_declare=False)
        self._note_reachable()
        return True

    def publish(self, attempt: Attempt, together: int = 1) -> None:
        """Collect an attempt for `flush`, in a message of at most ``together`` attempts of its lane."""
        self._pending.append((attempt, together))

    def flush(self) -> bool:
        """Send what is pending; false if the broker is unreachable, and then it stays pending.

        A message may be sent twice, or after its lease has lapsed; the worker's claim detects both.
        """
        if not self._pending:
            return True
        if not self.connect() or self._producer is None:
            return False
        try:
            self._send_all(self._producer)
        except _faults(self._producer.connection) as error:
            self.close()
            self._note_unreachable(error)
            return False
        self._pending.clear()
        return True

    def close(self) -> None:
        """Drop the connection; the next `connect` opens another."""
        producer, self._producer = self._producer, None
        self._declared.clear()
        self._blocked_reason = None
        if producer is not None and producer.connection is not None:
            producer.connection.release()

    def _open(self) -> Connection:
        connection: Connection = self._app.connection_for_write(connect_timeout=CONNECT_TIMEOUT_S)
        if connection.transport.driver_type == AMQP:
            # Without timeouts, the connection waits for ever for a server that hangs.
            limits = {"read_timeout": AMQP_TIMEOUT_S, "write_timeout": AMQP_TIMEOUT_S}
            callbacks = {"on_blocked": self._blocked, "on_unblocked": self._unblocked}
            connection.transport_options = {**(connection.transport_options or {}), **limits, **callbacks}
        return connection

    def _still_open(self, producer: Producer) -> bool:
        """Handle RabbitMQ's events: shutdown, full disk, missing queue. False if the connection is closed.

        A message to a server that is gone is lost without an error, until its lease lapses.
        """
        connection = producer.connection
        if connection is None or connection.transport.driver_type != AMQP:
            return True
        try:
            while _has_news(connection):
                connection.drain_events(timeout=AMQP_TIMEOUT_S)
        except _faults(connection) as error:
            self.close()
            self._note_unreachable(error)
        return self._producer is not None

    def _blocked(self, reason: str) -> None:
        self._blocked_reason = reason
        self._note_unreachable(OperationalError(f"RabbitMQ takes no messages: {reason}"))

    def _unblocked(self) -> None:
        self._blocked_reason = None
        self._note_reachable()

    def _note_reachable(self) -> None:
        if self._unreachable:
            log.info(Event.STORE_BACK, store="broker")
        self._unreachable = False

    def _note_unreachable(self, error: Exception) -> None:
        if not self._unreachable:
            log.warning(Event.STORE_UNREACHABLE, store="broker", error=in_words(error))
        self._unreachable = True

    def _send_all(self, producer: Producer) -> None:
        for lane in {attempt.lane for attempt, _ in self._pending} - self._declared:
            queue_of(lane)(producer.channel).declare()
            self._declared.add(lane)
        # RabbitMQ counts messages, not the attempts in them, against a worker's slots.
        single = producer.connection is not None and producer.connection.transport.driver_type == AMQP
        with producer.batch(max_size=BATCH):
            for attempts in _bundles((attempt, 1 if single else most) for attempt, most in self._pending):
                self._send(producer, attempts)

    def _send(self, producer: Producer, attempts: Sequence[Attempt]) -> None:
        attempt, *more = attempts
        message = self._app.amqp.as_task_v2(
            attempt.id,
            TASK_NAME,
            kwargs=attempt.to_message(),
            argsrepr="()",
            kwargsrepr=bundle.shown(attempt),
        )
        producer.publish(
            message.body,
            exchange="",
            routing_key=queue_name(attempt.lane),
            serializer="json",
            headers=message.headers | bundle.header_of(more),
            delivery_mode=2,
            mandatory=True,  # RabbitMQ then reports a deleted queue
            **message.properties,
        )


def _has_news(connection: Connection) -> bool:
    """Whether unread data has arrived. Raises ``OSError`` if the socket is closed."""
    amqp: Any = connection.connection
    sock = amqp.sock
    if sock is None:
        raise ConnectionResetError("the broker ended the connection")
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _faults(connection: Connection | None) -> tuple[type[Exception], ...]:
    """What the broker and the way to it may raise, also a RabbitMQ that refuses the user or its host."""
    known = () if connection is None else (*connection.connection_errors, *connection.channel_errors)
    return (KombuError, OSError, *known)


def _bundles(pending: Iterable[tuple[Attempt, int]]) -> Iterator[list[Attempt]]:
    """Group consecutive attempts of a lane, up to the size that each of them allows."""
    attempts: list[Attempt] = []
    room = 0
    for attempt, together in pending:
        if attempts and (attempts[0].lane != attempt.lane or len(attempts) >= min(room, together)):
            yield attempts
            attempts = []
        room = together if not attempts else min(room, together)
        attempts.append(attempt)
    if attempts:
        yield attempts

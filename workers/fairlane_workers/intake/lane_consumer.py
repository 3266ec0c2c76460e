"""Takes attempts off the lanes' queues in a process that runs the Celery worker of another application."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

from celery.exceptions import Reject
from kombu.message import Message
from kombu.messaging import Consumer
from kombu.mixins import ConsumerMixin
from redis.exceptions import RedisError

from fairlane.broker.app import IDLE_QUEUE, TASK_NAME, lane_queue, make_app
from fairlane.config.settings import Settings
from fairlane.core.events import Event
from fairlane.model.job import Attempt
from fairlane.telemetry.logs import get_logger
from fairlane_workers.intake.lane_queues import LaneQueues, attempts_of, hurried, why_refused

log = get_logger("consumer")

LOOK_S = 0.05  # the longest that a free slot waits for the next message
AGAIN_S = 1.0  # pause after a defect, or while the broker takes no writes
CLOSE_S = 5.0


class LaneConsumer(ConsumerMixin):
    """Consumes from Fairlane's broker over its own connection, on its own thread.

    So the process' own worker may have any broker, pool and settings. `LaneQueues` uses it like Celery's
    consumer. It acknowledges a message once the attempt is reported, or needs no slot any more: so at most
    ``slots`` attempts use one.
    """

    def __init__(
        self,
        settings: Settings,
        queues: LaneQueues,
        start: Callable[[Attempt, Callable[[], None]], Future[str]],
    ) -> None:
        self.app = make_app(settings, "fairlane_lanes")
        self.connection = self.app.connection_for_read()
        self.task_consumer: Consumer | None = None
        self.should_stop = False
        self._queues, self._start_attempt, self._slots = queues, start, settings.worker.slots
        self._ended = threading.Event()
        self._in_hand: set[Future[str]] = set()
        self._soon: deque[Callable[[], None]] = deque()
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._thread = threading.Thread(target=self._serve, name="fairlane-lanes", daemon=True)

    def start(self) -> None:
        """Begin to consume."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more messages. Attempts in flight continue, and do not need this connection."""
        self.should_stop = True
        self._ended.set()

    def close(self, timeout_s: float) -> None:
        """Return once every attempt in flight is reported, after ``timeout_s`` at the latest."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        wait(list(self._in_hand), timeout_s)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the consumer's thread, the only one that may use its connection."""
        self._soon.append(action)

    @property
    def timer(self) -> LaneConsumer:
        """The timer of Celery's consumer interface: this object."""
        return self

    def call_after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run ``action`` on the consumer's thread after some time; called on that thread."""
        self._due.append((time.monotonic() + seconds, action))

    def add_task_queue(self, name: str) -> None:
        """Consume one more queue."""
        if self.task_consumer is not None:
            self.task_consumer.add_queue(self.app.amqp.queues[name])
            self.task_consumer.consume()

    def cancel_task_queue(self, name: str) -> None:
        """Stop consuming one queue."""
        if self.task_consumer is not None:
            self.task_consumer.cancel_by_queue(name)

    def get_consumers(self, Consumer: Any, channel: Any) -> list[Any]:  # noqa: N803 - kombu's signature
        """See `ConsumerMixin`."""
        self._soon.clear()
        consumer = Consumer(
            queues=[lane_queue(IDLE_QUEUE)],
            on_message=self._receive,
            accept=["json"],
            prefetch_count=self._slots,
        )
        self.task_consumer = consumer
        return [consumer]

    def on_consume_ready(self, connection: Any, channel: Any, consumers: Any, **_: Any) -> None:
        """See `ConsumerMixin`."""
        self._queues.attach(self)

    @contextmanager
    def extra_context(self, connection: Any, channel: Any) -> Iterator[None]:
        """See `ConsumerMixin`."""
        try:
            yield
        finally:
            self._queues.detach()
            self.task_consumer = None

    def on_iteration(self) -> None:
        """See `ConsumerMixin`."""
        while self._soon:
            self._soon.popleft()()
        if self._due:
            due, self._due = self._due, []
            for at, action in due:
                if at <= time.monotonic():
                    action()
                else:
                    self._due.append((at, action))

    def create_connection(self) -> Any:
        """See `ConsumerMixin`."""
        return hurried(super().create_connection())

    def on_connection_error(self, exc: Any, interval: Any) -> None:
        """See `ConsumerMixin`."""
        log.warning(Event.BROKER_UNREACHABLE, error=str(exc), again_s=interval)

    def _serve(self) -> None:
        while not self.should_stop:
            try:
                self.run(safety_interval=LOOK_S)
            except RedisError as error:
                refused = why_refused(error, self.connection)
                if refused is None:
                    log.exception(Event.CONSUMER_FAILED)
                else:
                    log.warning(Event.BROKER_REFUSES, error=str(refused), again_s=AGAIN_S)
                self._ended.wait(AGAIN_S)
            except Exception:
                log.exception(Event.CONSUMER_FAILED)
                self._ended.wait(AGAIN_S)

    def _receive(self, message: Message) -> None:
        for one in attempts_of(message):
            self._begin(one)

    def _begin(self, message: Message) -> None:
        try:
            if message.headers.get("task") != TASK_NAME:
                raise ValueError(f"not an attempt: {message.headers.get('task')!r}")  # noqa: TRY301
            body: Any = message.decode()
            attempt = Attempt.from_message(body[1])
        except Exception:
            log.exception(Event.MESSAGE_UNREADABLE, id=str(message.headers.get("id"))[:200])
            message.ack()
            return
        consumer = self.task_consumer

        def free() -> None:  # called on the engine's thread
            self.call_soon(lambda: self._acknowledge(message, consumer))

        begun = self._start_attempt(attempt, free)
        self._in_hand.add(begun)
        begun.add_done_callback(lambda ended: self._end(ended, message, consumer))

    def _end(self, ended: Future[str], message: Message, consumer: Consumer | None) -> None:
        """Free the slot of a reported attempt; requeue one that the loop has not started."""
        self._in_hand.discard(ended)
        back = not ended.cancelled() and isinstance(ended.exception(), Reject)
        self.call_soon(lambda: self._acknowledge(message, consumer, back=back))

    def _acknowledge(self, message: Message, consumer: Consumer | None, *, back: bool = False) -> None:
        """Acknowledge a message once, so that the next one comes; never one of a lost connection."""
        if consumer is self.task_consumer and not message.acknowledged:
            message.requeue() if back else message.ack()

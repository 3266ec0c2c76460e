"""Takes attempts off the lanes' queues in a process whose Celery worker is somebody else's."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

from kombu.message import Message
from kombu.messaging import Consumer
from kombu.mixins import ConsumerMixin

from fairlane.broker import IDLE_QUEUE, TASK_NAME, lane_queue, make_app
from fairlane.job import Attempt
from fairlane.logs import get_logger
from fairlane.settings import Settings
from fairlane_workers.lane_queues import LaneQueues

log = get_logger("consumer")

LOOK_S = 0.05  # how soon a slot that became free takes the next message
AGAIN_S = 1.0  # after a defect
CLOSE_S = 5.0


class LaneConsumer(ConsumerMixin):
    """A connection of its own to Fairlane's broker, on a thread of its own.

    So it does not matter which broker, pool and settings the process' own worker has. It looks to
    `LaneQueues` like Celery's consumer. A message is acknowledged once its attempt has been reported, or
    needs no slot any more: there are never more in hand than slots, but for those.
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
        self._thread = threading.Thread(target=self._serve, name="fairlane-lanes", daemon=True)

    def start(self) -> None:
        """Begin to consume."""
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more. What is in hand goes on, and needs this connection no longer."""
        self.should_stop = True
        self._ended.set()

    def close(self, timeout_s: float) -> None:
        """Return once all that is in hand is reported, after ``timeout_s`` at the latest."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        wait(list(self._in_hand), timeout_s)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Have it done on the consumer's thread, which alone may use its connection."""
        self._soon.append(action)

    def add_task_queue(self, name: str) -> None:
        """Consume one queue more."""
        if self.task_consumer is not None:
            self.task_consumer.add_queue(self.app.amqp.queues[name])
            self.task_consumer.consume()

    def cancel_task_queue(self, name: str) -> None:
        """Consume one queue no more."""
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

    def on_connection_error(self, exc: Any, interval: Any) -> None:
        """See `ConsumerMixin`."""
        log.warning("broker_away", error=str(exc), again_s=interval)

    def _serve(self) -> None:
        while not self.should_stop:
            try:
                self.run(safety_interval=LOOK_S)
            except Exception:
                log.exception("consumer_broken")
                self._ended.wait(AGAIN_S)

    def _receive(self, message: Message) -> None:
        try:
            if message.headers.get("task") != TASK_NAME:
                raise ValueError(f"not an attempt: {message.headers.get('task')!r}")  # noqa: TRY301
            body: Any = message.decode()
            attempt = Attempt.from_message(body[1])
        except Exception:
            log.exception("message_unreadable", id=str(message.headers.get("id"))[:200])
            message.ack()
            return
        consumer = self.task_consumer

        def free() -> None:  # told on the engine's thread
            self.call_soon(lambda: self._acknowledge(message, consumer))

        begun = self._start_attempt(attempt, free)
        self._in_hand.add(begun)
        begun.add_done_callback(lambda ended: self._end(ended, free))

    def _end(self, ended: Future[str], free: Callable[[], None]) -> None:
        """An attempt is reported."""
        self._in_hand.discard(ended)
        free()

    def _acknowledge(self, message: Message, consumer: Consumer | None) -> None:
        """Make room for the next message, once. One of a connection that was lost has none to make."""
        if consumer is self.task_consumer and not message.acknowledged:
            message.ack()

"""Celery queues of lanes, consumed as the lanes appear and again after every reconnection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from celery import bootsteps

from fairlane.broker import queue_of
from fairlane.lane import queue_name


class LaneQueues:
    """Which lanes' queues this worker consumes. Wanted from any thread, applied on the consumer's own."""

    def __init__(self, on_change: Callable[[frozenset[str]], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._wanted: set[str] = set()
        self._held = False
        self._consumed: frozenset[str] = frozenset()

    @property
    def listening(self) -> bool:
        """Whether a consumer takes what the lanes have."""
        return self._consumer is not None and not self._held

    @property
    def consumed(self) -> frozenset[str]:
        """Lanes whose queues are being consumed."""
        return self._consumed

    def want(self, lanes: list[str]) -> None:
        """Consume the queues of these lanes too."""
        with self._lock:
            self._wanted.update(lanes)
            behind, consumer = not (self._held or self._consumed.issuperset(lanes)), self._consumer
        if behind and consumer is not None:
            consumer.call_soon(self._apply)

    def hold(self) -> None:
        """Consume no lane's queue until `release`: what lies there is other workers'."""
        self._hold(True)

    def release(self) -> None:
        """Consume again all that is wanted."""
        self._hold(False)

    def attach(self, consumer: Any) -> None:
        """A consumer has started: it is to consume all that is wanted."""
        with self._lock:
            self._consumer, self._consumed = consumer, frozenset()
        channel = consumer.task_consumer.channel
        if getattr(channel, "do_restore", False):
            # Leases bring back what a lost connection held; the broker would send it a second time.
            channel.do_restore = False
        # Not at once: RabbitMQ would deliver before Celery has said what is to be done with a message.
        consumer.call_soon(self._apply)

    def detach(self) -> None:
        """The consumer lost its connection or stops: what is sent now would lie at the broker."""
        with self._lock:
            self._consumer, self._consumed = None, frozenset()
        self._on_change(frozenset())

    def _hold(self, held: bool) -> None:
        with self._lock:
            changed, self._held = held != self._held, held
            consumer = self._consumer
        if changed and consumer is not None:
            consumer.call_soon(self._apply)

    def _apply(self) -> None:
        with self._lock:
            consumer, wanted = self._consumer, [] if self._held else sorted(self._wanted)
            left = self._consumed.difference(wanted)
        if consumer is None or consumer.task_consumer is None:
            return
        for lane in sorted(left):
            consumer.cancel_task_queue(queue_name(lane))
        known = consumer.app.amqp.queues
        for lane in wanted:
            queue = queue_name(lane)
            if queue not in known:
                known.add(queue_of(lane))
            if not consumer.task_consumer.consuming_from(queue):
                consumer.add_task_queue(queue)
        consumed = frozenset(wanted)
        if consumed != self._consumed:
            self._consumed = consumed
            self._on_change(consumed)


def consumer_step(queues: LaneQueues) -> type:
    """A bootstep that binds ``queues`` to the worker's consumer."""

    class LaneQueuesStep(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = ("celery.worker.consumer.tasks:Tasks",)

        def start(self, parent: Any) -> None:
            queues.attach(parent)

        def stop(self, parent: Any) -> None:
            queues.detach()

    return LaneQueuesStep

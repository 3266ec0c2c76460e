"""Celery's consumer, less what it would set up on RabbitMQ for tasks that are to run later."""

from __future__ import annotations

from typing import ClassVar

from celery.worker.consumer import Consumer

CONSUMER = "fairlane_workers.consumer:LaneWorkerConsumer"

_DELAYS = "celery.worker.consumer.delayed_delivery:DelayedDelivery"


class LaneWorkerConsumer(Consumer):  # type: ignore[misc]
    """What ``worker_consumer`` names. No attempt has a delay: it waits in Redis until it may start.

    Celery's own makes 28 exchanges and queues for delays wherever it finds a quorum queue.
    """

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        default_steps: ClassVar[list[str]] = [
            step for step in Consumer.Blueprint.default_steps if step != _DELAYS
        ]

"""The Celery application that both roles share: one task, JSON only, a queue a lane, no re-delivery."""

from __future__ import annotations

from typing import Any

from celery import Celery
from kombu.entity import Exchange, Queue

from fairlane.lane import queue_name
from fairlane.settings import Settings

TASK_NAME = "fairlane.attempt"
DEFAULT_DEPLOYMENT = "main"  # its queues are named as they are; another's carry its name in front
IDLE_QUEUE = "fairlane.idle"  # what a worker listens to before any lane is known; nothing is ever sent there

_REDIS_SCHEMES = ("redis://", "rediss://", "redis+socket://", "sentinel://")

# Leases recover what a broker loses, so it need not acknowledge: a third of the commands, and workers that
# survive a restart of Redis. One priority step keeps the number of lists it polls at one a lane.
_REDIS_TRANSPORT: dict[str, Any] = {"ack_emulation": False, "priority_steps": [0], "socket_keepalive": True}


def make_app(settings: Settings, name: str) -> Celery:
    """A Celery application on the configured broker."""
    app = Celery(name, broker=settings.broker_url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        result_backend=None,
        task_ignore_result=True,
        task_acks_late=True,
        task_acks_on_failure_or_timeout=True,
        task_default_queue=IDLE_QUEUE,
        task_create_missing_queues=False,
        task_queues=[lane_queue(IDLE_QUEUE)],
        worker_prefetch_multiplier=1,
        worker_concurrency=settings.worker.slots,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_enable_remote_control=True,
        worker_detect_quorum_queues=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=_transport_options(settings),
    )
    return app


def lane_queue(name: str) -> Queue:
    """A durable queue on the default exchange, where its name is its address."""
    return Queue(name, exchange=Exchange(""), routing_key=name, durable=True)


def queue_of(lane: str) -> Queue:
    """The queue of a lane."""
    return lane_queue(queue_name(lane))


def _transport_options(settings: Settings) -> dict[str, Any]:
    if not settings.broker_url.startswith(_REDIS_SCHEMES):
        return {}
    deployment = settings.redis.deployment
    own = {} if deployment == DEFAULT_DEPLOYMENT else {"global_keyprefix": f"{deployment}:"}
    return _REDIS_TRANSPORT | own

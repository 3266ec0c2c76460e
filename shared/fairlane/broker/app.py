"""Makes the Celery application of both roles: one task, JSON only, a queue per lane, no redelivery."""

from typing import Any

from celery import Celery
from celery.app.utils import Settings as CelerySettings
from kombu.connection import Connection
from kombu.entity import Exchange, Queue

from fairlane.broker.transport import transport_of
from fairlane.config.settings import Settings
from fairlane.model.lane import queue_name

TASK_NAME = "fairlane.attempt"
IDLE_QUEUE = "fairlane.idle"  # a worker consumes it before any lane exists; it stays empty

_QUORUM = {"x-queue-type": "quorum"}  # brokers without queue types ignore it


class ApplicationSettings(CelerySettings):  # type: ignore[misc]
    """Celery's settings, without its precedence of environment variables for these four."""

    @property
    def broker_url(self) -> Any:
        """The application's broker."""
        return self.first("broker_url")

    @property
    def broker_read_url(self) -> Any:
        """The same broker."""
        return self.broker_url

    @property
    def broker_write_url(self) -> Any:
        """The same broker."""
        return self.broker_url

    @property
    def result_backend(self) -> Any:
        """The application's result backend."""
        return self.first("result_backend")


def make_app(settings: Settings, name: str) -> Celery:
    """A Celery application on the configured broker.

    Celery reads nothing from the environment, whose variables may be for another application.
    """
    transport = transport_of(settings)
    said = dict(
        broker_url=transport.url,
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
        worker_detect_quorum_queues=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        **transport.settings,
    )
    app = Celery(name, loader="app", fixups=(), config_source=said, set_as_current=False)
    object.__setattr__(app.conf, "__class__", ApplicationSettings)  # assigned plainly, it would be a setting
    return app


def reach(connection: Connection, timeout_s: float) -> None:
    """Connect to the first of the broker's nodes that answers within ``timeout_s``, each once.

    Raises kombu's ``OperationalError``.
    """
    nodes = len(connection.alt) or 1
    connection.ensure_connection(max_retries=nodes - 1, timeout=timeout_s * nodes)


def lane_queue(name: str) -> Queue:
    """A durable queue on the default exchange, which routes by name; on RabbitMQ, a quorum queue."""
    return Queue(name, exchange=Exchange(""), routing_key=name, durable=True, queue_arguments=_QUORUM)


def queue_of(lane: str) -> Queue:
    """The queue of a lane."""
    return lane_queue(queue_name(lane))

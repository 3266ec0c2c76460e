"""The check of `fairlane doctor` on the broker that carries attempts to the workers."""

from typing import Any

from kombu.connection import Connection

from fairlane.broker.app import IDLE_QUEUE, lane_queue, make_app, reach
from fairlane.broker.transport import is_rabbitmq
from fairlane.cli.operate.findings import BrokerView
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError
from fairlane.core.redaction import mask_text
from fairlane.store.connection.tls_errors import in_words

TIMEOUT_S = 3.0
OLDEST_RABBITMQ = (3, 8)
ACCESS_REFUSED = 403

RIGHTS = r"^(amq\.default|fairlane\.|.*celery).*"
ALLOW = f"Let this user configure, write and read {RIGHTS} in that virtual host."
MAKE_ANEW = "Delete that queue while nothing runs: Fairlane creates it again, as a quorum queue."


def inspect_broker(settings: Settings) -> BrokerView:
    """Connect as scheduler and workers do; on RabbitMQ, also declare a queue as workers do. Never raises."""
    try:
        app = make_app(settings, "fairlane-doctor")
    except ConfigurationError as error:
        return BrokerView(
            problem="none is configured, and Celery's queues cannot be on a cluster", remedy=error.remedy
        )
    connection = app.connection(connect_timeout=TIMEOUT_S)
    try:
        reach(connection, TIMEOUT_S)
        return _rabbitmq(connection) if is_rabbitmq(settings.broker_url) else BrokerView()
    except Exception as error:  # noqa: BLE001  every transport has errors of its own
        return BrokerView(problem=f"it does not answer: {_said(error)}")
    finally:
        connection.release()


def _rabbitmq(connection: Connection) -> BrokerView:
    amqp: Any = connection.connection
    server: dict[str, Any] = amqp.server_properties
    product, version = str(server.get("product", "AMQP")), str(server.get("version", "0"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if product == "RabbitMQ" and numbers < OLDEST_RABBITMQ:
        return BrokerView(problem=f"RabbitMQ {version} has no quorum queues", remedy="Use 3.8 or later.")
    try:
        lane_queue(IDLE_QUEUE)(connection.default_channel).declare()
    except connection.channel_errors as error:
        return BrokerView(problem=f"it refuses the queue {IDLE_QUEUE}: {_said(error)}", remedy=_remedy(error))
    return BrokerView(summary=f"{product} {version}, quorum queues")


def _remedy(error: Exception) -> str:
    refused = getattr(error, "reply_code", None) == ACCESS_REFUSED
    return ALLOW if refused else MAKE_ANEW


def _said(error: Exception) -> str:
    return mask_text(in_words(error)) or type(error).__name__

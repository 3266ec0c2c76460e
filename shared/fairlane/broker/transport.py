"""Translates the configured broker for Celery: kombu's form of the URL, and transport options."""

import ssl
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.connection import parse_url

from fairlane.config.settings import Settings
from fairlane.config.topology import Topology, topology_of

DEFAULT_DEPLOYMENT = "main"  # its queues have plain names; on Redis another deployment's name is a prefix

_REDIS_SCHEMES = ("redis://", "rediss://", "redis+socket://")
_AMQP_SCHEMES = ("amqp://", "amqps://", "pyamqp://")

ANSWER_TIMEOUT_S = 2.0
"""Longest wait for an answer of Redis: a leader must bid again within its lease, 3 s by default."""

HEALTH_CHECK_S = 3
"""Seconds after which a blocking pop of 1 s is overdue, so that kombu connects again, and between the
checks."""

# Leases recover lost messages, so acknowledgements are off: this saves a third of the commands, and workers
# survive a restart of Redis. One priority step means one polled list per lane. Without timeouts a process
# waits for ever for a server that a balancer dropped, or whose host has died.
_REDIS_TRANSPORT: dict[str, Any] = {
    "ack_emulation": False,
    "priority_steps": [0],
    "socket_keepalive": True,
    "socket_timeout": ANSWER_TIMEOUT_S,
    "socket_connect_timeout": ANSWER_TIMEOUT_S,
    "health_check_interval": HEALTH_CHECK_S,
}


class Transport(NamedTuple):
    """``url`` and ``options`` for Celery; ``tls`` if the connection verifies certificates."""

    url: str
    options: dict[str, Any]
    tls: dict[str, Any] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The transport as Celery's settings."""
        secured = {} if self.tls is None else {"broker_use_ssl": self.tls}
        return {"broker_transport_options": self.options, **secured}


def transport_of(settings: Settings) -> Transport:
    """The broker's transport. Raises `ConfigurationError` if none is configured and one is required."""
    url = settings.broker_url
    own = _key_prefix(settings.redis.deployment)
    topology = topology_of(url)
    if topology is not None:
        return _sentinels(topology, own)
    if url.startswith(_REDIS_SCHEMES):
        plain, tls = _checked(url)
        return Transport(plain, _REDIS_TRANSPORT | own, tls)
    if url.startswith("amqps://"):
        return Transport(*_checked_amqp(url))
    return Transport(url, {})


def is_rabbitmq(url: str) -> bool:
    """Whether a broker speaks AMQP."""
    return url.startswith(_AMQP_SCHEMES)


def _key_prefix(deployment: str) -> dict[str, str]:
    return {} if deployment == DEFAULT_DEPLOYMENT else {"global_keyprefix": f"{deployment}:"}


def _sentinels(topology: Topology, own: dict[str, str]) -> Transport:
    """Kombu takes one URL per Sentinel, with the server's credentials, and the Sentinels' options
    separately.
    """
    each = [topology.server_url(node).partition("://")[2].partition("?")[0] for node in topology.nodes]
    options = _REDIS_TRANSPORT | own | {"master_name": topology.service}
    to_sentinel: dict[str, Any] = dict(topology.sentinel)
    tls = _checked(topology.server_url(topology.nodes[0]))[1]
    if tls is not None:
        to_sentinel |= {"ssl": True, **tls}
    options["sentinel_kwargs"] = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0, **to_sentinel}
    return Transport(";".join(f"sentinel://{one}" for one in each), options, tls)


def _checked(url: str) -> tuple[str, dict[str, Any] | None]:
    """The broker's URL, and Celery's settings that verify its certificate and host name.

    kombu verifies neither for a ``rediss://`` URL without TLS options, and adds nothing to given ones. So the
    options go into ``broker_use_ssl``, which Celery and Flower read.
    """
    if not url.startswith("rediss://"):
        return url, None
    configured = {name: value for name, value in parse_url(url).items() if name.startswith("ssl_")}
    checks = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    return _without_tls(url), {**configured, **checks}


def _checked_amqp(url: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """`_checked` for RabbitMQ: py-amqp verifies a host name only if it is given. With several nodes,
    ``amqps://one;amqps://two``, kombu inserts the one that it connects to.
    """
    nodes = url.split(";")
    query = dict(parse_qsl(urlsplit(nodes[0]).query))
    files = {
        name: query[f"ssl_{name}"] for name in ("ca_certs", "certfile", "keyfile") if f"ssl_{name}" in query
    }
    name = urlsplit(url).hostname if len(nodes) == 1 else None
    checks = {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": name}
    return ";".join(_without_tls(node) for node in nodes), {}, {**files, **checks}


def _without_tls(url: str) -> str:
    parts = urlsplit(url)
    others = [(name, value) for name, value in parse_qsl(parts.query) if not name.startswith("ssl_")]
    return urlunsplit(parts._replace(query=urlencode(others)))

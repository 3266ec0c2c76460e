"""Opens Redis the way every role does: one set of timeouts and retries, errors in our own words."""

from __future__ import annotations

import re
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from fairlane.errors import StoreUnavailable
from fairlane.settings import RedisSettings
from fairlane.store.last_word import last_word
from fairlane.store.primary_pool import primary_pool
from fairlane.store.trust import first_word_refused, options_of, refusal_of
from fairlane.topology import topology_of

RedisClient: TypeAlias = Any
"""A redis-py client, blocking or not. Its declared types are unions over every protocol and decoding option;
ours answers in bytes, and the one function that reads a reply knows what it is."""

_SENTINELS_PASSWORD = re.compile(r"([?&]sentinel_password=)[^&#]*")

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0


def open_store(settings: RedisSettings, *, retries: int = 1) -> RedisClient:
    """A client of the server that has a deployment's state; see `open_redis`."""
    return open_redis(settings.url, deployment=settings.deployment, retries=retries)


def open_redis(url: str, *, deployment: str | None = None, retries: int = 1, **options: Any) -> RedisClient:
    """A client that decodes text as it is (bytes). ``deployment`` tells where in a cluster to look for keys.

    What got no reply is sent again ``retries`` times, although it may have taken effect; then it raises.
    """
    # What redis-py takes for a network connection, and refuses for a socket file.
    network = {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_keepalive": True}
    how: dict[str, Any] = {
        **({} if url.startswith("unix://") else network),
        "socket_timeout": ANSWER_TIMEOUT_S,
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.02), retries),
    }
    topology = topology_of(url)
    if topology is not None:
        if deployment is None:
            raise ValueError("which deployment's server is meant?")
        return Redis.from_pool(primary_pool(topology, deployment, **how, **options))
    return Redis.from_url(url, **how, **options_of(url), **options)


def require(redis: RedisClient, url: str) -> RedisClient:
    """The client, after one PING. Raises `StoreUnavailable`."""
    try:
        redis.ping()
    except (RedisConnectionError, RedisTimeoutError, OSError) as error:
        if hung_up := first_word_refused(error, url):
            raise StoreUnavailable(without_password(url), *hung_up) from error
        raise unavailable(without_password(url), _told(error, url)) from error
    except RedisError as error:
        raise StoreUnavailable(without_password(url), f"the server answered {error}") from error
    return redis


def require_trust(url: str, deployment: str | None = None) -> None:
    """Raises `StoreUnavailable` where a server answers whose TLS is refused: to wait would mend nothing."""
    if not url.startswith("rediss"):
        return
    with open_redis(url, deployment=deployment, retries=0) as client:
        try:
            client.ping()
        except (RedisError, OSError) as error:
            told = _told(error, url)
            if refusal_of(told, url) is not None:
                raise unavailable(without_password(url), told) from error


def _told(error: Exception, url: str) -> Exception:
    """The error, or what the server said before it ended the connection."""
    if refusal_of(error, url) is not None or isinstance(error, RedisTimeoutError):
        return error
    return last_word(url) or error


def unavailable(shown: str, error: Exception) -> StoreUnavailable:
    """The error to raise for one of Redis'; ``shown`` is its URL without the password."""
    refused = refusal_of(error, shown)
    return StoreUnavailable(shown, str(error)) if refused is None else StoreUnavailable(shown, *refused)


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(_SENTINELS_PASSWORD.sub(r"\1***", url))
    if parts.password is None:
        return urlunsplit(parts)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))

"""Opens Redis the way every role does: one set of timeouts and retries, errors in our own words."""

from __future__ import annotations

from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.retry import Retry

from fairlane.errors import StoreUnavailable

RedisClient: TypeAlias = Any
"""A redis-py client, blocking or not. Its declared types are unions over every protocol and decoding option;
ours answers in bytes, and the one function that reads a reply knows what it is."""

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0


def open_redis(url: str, *, retries: int = 1, **options: Any) -> RedisClient:
    """A client that decodes text as it is (bytes).

    What got no reply is sent again ``retries`` times, although it may have taken effect; then it raises.
    """
    # What redis-py takes for a network connection, and refuses for a socket file.
    network = {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_keepalive": True}
    return Redis.from_url(
        url,
        **({} if url.startswith("unix://") else network),
        socket_timeout=ANSWER_TIMEOUT_S,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), retries),
        **options,
    )


def require(redis: RedisClient, url: str) -> RedisClient:
    """The client, after one PING. Raises `StoreUnavailable`."""
    try:
        redis.ping()
    except (RedisConnectionError, OSError) as error:
        raise StoreUnavailable(without_password(url), str(error)) from error
    except RedisError as error:
        raise StoreUnavailable(without_password(url), f"the server answered {error}") from error
    return redis


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))

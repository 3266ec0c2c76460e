"""Opens Redis for every role with one set of timeouts and retries, and readable errors."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from fairlane.config.sections import RedisSettings
from fairlane.core.errors import FairlaneError, OldSchema, StoreRefuses, StoreUnavailable
from fairlane.core.redaction import shown_url
from fairlane.store.connection.misfits import CLUSTERED, is_clustered, misfit_of, missing_right
from fairlane.store.connection.primary_pool import primary_pool
from fairlane.store.connection.server_states import DISK, refusing_state
from fairlane.store.connection.tls_errors import plaintext_mismatch, refusal_of, tls_alert
from fairlane.store.keys import KEY_VERSION, Keys
from fairlane.store.redis_client import RedisClient as RedisClient

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0

# redis-py's errors when the connection is made but no reply comes.
_SILENT = "Timeout reading"
_SILENT_REMEDY = "The server hangs, or runs one long command, or something else listens there: see its log"

T = TypeVar("T")
D = TypeVar("D")


def open_store(
    settings: RedisSettings, *, retries: int = 1, answer_s: float = ANSWER_TIMEOUT_S
) -> RedisClient:
    """A client of the server that holds a deployment's state; see `open_redis`."""
    return open_redis(settings.url, deployment=settings.deployment, retries=retries, answer_s=answer_s)


def open_redis(
    url: str,
    *,
    deployment: str | None = None,
    retries: int = 1,
    answer_s: float = ANSWER_TIMEOUT_S,
    **options: Any,
) -> RedisClient:
    """A client whose replies are bytes. ``deployment`` says which node of a cluster has the keys.

    A command without a reply within ``answer_s`` seconds is sent again ``retries`` times, although it may
    have taken effect. After these retries the client raises.
    """
    # Options that redis-py takes for a network connection, but not for a socket file.
    network = {"socket_connect_timeout": min(CONNECT_TIMEOUT_S, answer_s), "socket_keepalive": True}
    how: dict[str, Any] = {
        **({} if url.startswith("unix://") else network),
        "socket_timeout": answer_s,
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.02), retries),
        **options,
    }
    return Redis.from_pool(primary_pool(url, deployment, **how))


def require(redis: RedisClient, url: str) -> RedisClient:
    """The client, after one PING. Raises `StoreUnavailable`.

    A server that cannot write to its disk refuses PING like writes, but answers reads.
    """
    try:
        redis.ping()
    except (BusyLoadingError, AuthenticationError) as error:
        raise unavailable(without_password(url), error) from error
    except (RedisConnectionError, RedisTimeoutError, OSError) as error:
        if hung_up := plaintext_mismatch(error, url):
            raise StoreUnavailable(without_password(url), *hung_up) from error
        raise unavailable(without_password(url), _cause_of(error, url)) from error
    except RedisError as error:
        if refusing_state(error) is not DISK:
            raise unavailable(without_password(url), error) from error
    return redis


def require_trust(url: str, deployment: str | None = None) -> None:
    """Raise `StoreUnavailable` if a server answers and TLS fails: waiting does not help."""
    if not url.startswith("rediss"):
        return
    with open_redis(url, deployment=deployment, retries=0) as client:
        try:
            client.ping()
        except (RedisError, OSError) as error:
            cause = _cause_of(error, url)
            if refusal_of(cause, url) is not None:
                raise unavailable(without_password(url), cause) from error


def _cause_of(error: Exception, url: str) -> Exception:
    """The error, or the alert that the server sent before it ended the connection."""
    if refusal_of(error, url) is not None or isinstance(error, RedisTimeoutError):
        return error
    return tls_alert(url) or error


def unavailable(shown: str, error: Exception) -> StoreUnavailable:
    """The error to raise for an error of Redis; ``shown`` is its URL without the password."""
    refused = refusing_state(error) or misfit_of(error)
    if refused is not None:
        return StoreRefuses(shown, *refused)
    if isinstance(error, ResponseError):
        return StoreRefuses(shown, f"Redis answered {error}", "`fairlane doctor` checks the server")
    if isinstance(error, RedisTimeoutError) and _SILENT in str(error):
        return StoreUnavailable(shown, "it takes connections and answers nothing in time", _SILENT_REMEDY)
    refused = refusal_of(error, shown)
    return StoreUnavailable(shown, str(error)) if refused is None else StoreUnavailable(shown, *refused)


def without_password(url: str) -> str:
    """The URL as a message shows it: see `shown_url`."""
    return shown_url(url)


def if_allowed(read: Callable[[], T], otherwise: D) -> T | D:
    """The result of ``read``, or ``otherwise`` if Redis denies it to this user."""
    try:
        return read()
    except NoPermissionError:
        return otherwise


def require_schema(redis: RedisClient, settings: RedisSettings) -> None:
    """Raise `OldSchema` if the deployment has keys of an earlier schema; costs one round trip.

    Raises nothing for a team's own user, which may not read them.
    """
    for version in range(1, int(KEY_VERSION[1:])):
        old = Keys(settings.deployment, f"v{version}")
        with suppress(NoPermissionError):
            if redis.exists(old.leader, old.teams, old.lanes):
                raise OldSchema(without_password(settings.url), settings.deployment, old.prefix, KEY_VERSION)


def require_usable(settings: RedisSettings, broker_url: str) -> None:
    """Check before a role starts: certificates of Redis and broker, password, database, cluster, schema.

    Raises `StoreUnavailable`, `StoreRefuses` and `OldSchema`; nothing if Redis does not answer yet.
    """
    for url in dict.fromkeys((settings.url, broker_url)):
        require_trust(url, settings.deployment)
        if url.startswith(("redis://", "rediss://")) and _answer(url, settings.deployment, is_clustered):
            raise StoreRefuses(without_password(url), *CLUSTERED)
    _answer(settings.url, settings.deployment, lambda redis: require_schema(redis, settings))


def require_rights(settings: RedisSettings, broker_url: str) -> None:
    """Raise `StoreRefuses` if the user lacks a right that a role needs, as far as it can be tested.

    Nothing where Redis does not answer yet.
    """
    shared, keys = broker_url == settings.url or settings.url.startswith("unix://"), Keys(settings.deployment)
    missing = _answer(
        settings.url, settings.deployment, lambda redis: missing_right(redis, keys, broker=shared)
    )
    if missing is not None:
        raise StoreRefuses(without_password(settings.url), *missing)


def _answer(url: str, deployment: str, read: Callable[[RedisClient], T]) -> T | None:
    """The result of ``read``; ``None`` if Redis does not answer yet.

    Raises `StoreRefuses` if it refuses the password or the database.
    """
    with open_redis(url, deployment=deployment, retries=0) as redis:
        try:
            return read(redis)
        except FairlaneError:  # before OSError: some are both
            raise
        except (RedisError, OSError) as error:
            if misfit_of(error) is not None:
                raise unavailable(without_password(url), error) from error
            return None

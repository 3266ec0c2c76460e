"""Connections that find the primary when they are opened, and close once another server is the primary."""

import asyncio
from time import monotonic
from typing import Any

from redis.asyncio.connection import Connection as AsyncConnection
from redis.asyncio.connection import ConnectionPool as AsyncConnectionPool
from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.connection import Connection, ConnectionPool, SSLConnection, parse_url
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MasterDownError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from fairlane.config.topology import topology_of
from fairlane.store.connection.primary import Find, finder_of
from fairlane.store.connection.server_states import LONELY, refusing_state
from fairlane.store.connection.tls_errors import options_of

_ELSEWHERE = (ReadOnlyError, MasterDownError, AskError, TryAgainError, ClusterDownError)
"""Errors of a server that is a replica now, of a node whose keys are on another node or on their way there
(ASK, TRYAGAIN), and of nodes that have not agreed yet who takes over."""


MOST_AGE_S = 30.0
"""An older connection is replaced before its next command. A client that only reads gets no error from a
server that was demoted; and balancers forget connections that are idle for a minute or more."""


class _Blocking(Connection):
    """A connection that finds the primary again, by ``find``, whenever it may have moved.

    That is after a ``ConnectionError``; after NOREPLICAS, which a live primary that Sentinels have replaced
    sends for ten seconds; and before the next command of an old connection. Without ``find`` it uses its one
    address, behind which another server may have become the primary.
    """

    def __init__(self, *, find: Find | None, **options: Any) -> None:
        self._find, self._renew_at = find, 0.0
        super().__init__(**options)

    def send_packed_command(self, *args: Any, **options: Any) -> Any:
        """See redis-py's."""
        if monotonic() > self._renew_at:
            self.disconnect()
        return super().send_packed_command(*args, **options)

    def _connect(self) -> Any:
        self._renew_at = monotonic() + MOST_AGE_S
        if self._find is not None:
            self.host, self.port = self._find()
        return super()._connect()

    def read_response(self, *args: Any, **options: Any) -> Any:
        """See redis-py's."""
        try:
            return super().read_response(*args, **options)
        except _ELSEWHERE as error:
            self.disconnect()
            if self._find is None:
                raise
            raise RedisConnectionError(f"{self.host}:{self.port} is not the one to ask: {error}") from error
        except ResponseError as error:
            if refusing_state(error) is LONELY:
                self._renew_at = 0.0
            raise


class _BlockingTls(_Blocking, SSLConnection):
    """The same over TLS."""


class _Asynchronous(AsyncConnection):
    """`_Blocking` for asyncio. A thread runs ``find``, which is rare: so there is no asynchronous copy."""

    def __init__(self, *, find: Find | None, **options: Any) -> None:
        self._find, self._renew_at = find, 0.0
        super().__init__(**options)

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        """See redis-py's."""
        if monotonic() > self._renew_at:
            await self.disconnect()
        await super().send_packed_command(*args, **options)

    async def _connect(self) -> None:
        self._renew_at = monotonic() + MOST_AGE_S
        if self._find is not None:
            self.host, self.port = await asyncio.to_thread(self._find)
        await super()._connect()

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """See redis-py's."""
        try:
            return await super().read_response(*args, **options)
        except _ELSEWHERE as error:
            await self.disconnect()
            if self._find is None:
                raise
            raise RedisConnectionError(f"{self.host}:{self.port} is not the one to ask: {error}") from error
        except ResponseError as error:
            if refusing_state(error) is LONELY:
                self._renew_at = 0.0
            raise


class _AsynchronousTls(_Asynchronous, AsyncSSLConnection):
    """The same over TLS."""


def primary_pool(url: str, deployment: str | None, **options: Any) -> ConnectionPool:
    """Blocking connections to the primary; ``options`` are a connection's.

    ``deployment`` says which node of a cluster has the keys. Raises ``ValueError`` where it is missing.
    """
    if url.startswith("unix://"):
        return ConnectionPool.from_url(url, **options)
    kind = _BlockingTls if url.startswith("rediss") else _Blocking
    return ConnectionPool(connection_class=kind, **_options_of(url, deployment), **options)


def async_primary_pool(url: str, deployment: str, **options: Any) -> AsyncConnectionPool:
    """Connections to the primary for asyncio."""
    if url.startswith("unix://"):
        return AsyncConnectionPool.from_url(url, **options)
    kind = _AsynchronousTls if url.startswith("rediss") else _Asynchronous
    return AsyncConnectionPool(connection_class=kind, **_options_of(url, deployment), **options)


def _options_of(url: str, deployment: str | None) -> dict[str, Any]:
    """Connection options from the URL, with a finder of the primary if it names several servers."""
    topology = topology_of(url)
    if topology is not None:
        if deployment is None:
            raise ValueError("which deployment's server is meant?")
        url = topology.server_url(topology.nodes[0])
    stated: dict[str, Any] = {"host": "localhost", "port": 6379, **parse_url(url), **options_of(url)}
    stated.pop("connection_class", None)
    find = None if topology is None or deployment is None else finder_of(topology, deployment)
    return {**stated, "find": find}

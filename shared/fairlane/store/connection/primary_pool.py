"""Connections that find the primary each time they are made, and end once it is elsewhere."""

from __future__ import annotations

import asyncio
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

from fairlane.config.topology import Topology
from fairlane.store.connection.primary import Finder, finder_of
from fairlane.store.connection.server_states import LONELY, refusing_state
from fairlane.store.connection.tls_errors import options_of

_ELSEWHERE = (ReadOnlyError, MasterDownError, AskError, TryAgainError, ClusterDownError)
"""The server is a replica now; or our keys are with another node, or on their way there (ASK, TRYAGAIN). Or
the nodes have not agreed yet who takes over."""


class _Blocking(Connection):
    """After a ``ConnectionError`` the next try connects to the primary.

    So does the next command after NOREPLICAS: a primary that Sentinels replaced while it lived answers so
    for the ten seconds until they demote it.
    """

    def __init__(self, *, finder: Finder, **options: Any) -> None:
        self._finder, self._doubtful = finder, False
        super().__init__(**options)

    def send_packed_command(self, *args: Any, **options: Any) -> Any:
        """See redis-py's."""
        if self._doubtful:
            self.disconnect()
        return super().send_packed_command(*args, **options)

    def _connect(self) -> Any:
        self._doubtful = False
        self.host, self.port = self._finder.find()
        return super()._connect()

    def read_response(self, *args: Any, **options: Any) -> Any:
        """See redis-py's."""
        try:
            return super().read_response(*args, **options)
        except _ELSEWHERE as error:
            self.disconnect()
            raise RedisConnectionError(f"{self.host}:{self.port} is not the one to ask: {error}") from error
        except ResponseError as error:
            self._doubtful |= refusing_state(error) is LONELY
            raise


class _BlockingTls(_Blocking, SSLConnection):
    """The same over TLS."""


class _Asynchronous(AsyncConnection):
    """`_Blocking` for asyncio. It looks for the primary on a thread: that is rare, and one piece of code."""

    def __init__(self, *, finder: Finder, **options: Any) -> None:
        self._finder, self._doubtful = finder, False
        super().__init__(**options)

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        """See redis-py's."""
        if self._doubtful:
            await self.disconnect()
        await super().send_packed_command(*args, **options)

    async def _connect(self) -> None:
        self._doubtful = False
        self.host, self.port = await asyncio.to_thread(self._finder.find)
        await super()._connect()

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """See redis-py's."""
        try:
            return await super().read_response(*args, **options)
        except _ELSEWHERE as error:
            await self.disconnect()
            raise RedisConnectionError(f"{self.host}:{self.port} is not the one to ask: {error}") from error
        except ResponseError as error:
            self._doubtful |= refusing_state(error) is LONELY
            raise


class _AsynchronousTls(_Asynchronous, AsyncSSLConnection):
    """The same over TLS."""


def primary_pool(topology: Topology, deployment: str, **options: Any) -> ConnectionPool:
    """Blocking connections to the primary; ``options`` are a connection's."""
    kind = _BlockingTls if topology.scheme == "rediss" else _Blocking
    return ConnectionPool(connection_class=kind, **_stated(topology, deployment), **options)


def async_primary_pool(topology: Topology, deployment: str, **options: Any) -> AsyncConnectionPool:
    """Connections to the primary for asyncio."""
    kind = _AsynchronousTls if topology.scheme == "rediss" else _Asynchronous
    return AsyncConnectionPool(connection_class=kind, **_stated(topology, deployment), **options)


def _stated(topology: Topology, deployment: str) -> dict[str, Any]:
    """What the URL says of a connection, but for where it goes."""
    url = topology.server_url(topology.nodes[0])
    stated: dict[str, Any] = {**parse_url(url), **options_of(url)}
    for found_out in ("host", "port", "connection_class"):
        stated.pop(found_out, None)
    return {**stated, "finder": finder_of(topology, deployment)}

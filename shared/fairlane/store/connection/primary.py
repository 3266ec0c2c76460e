"""Finds the primary: at one address, by Sentinels, or by a cluster's nodes."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from redis import Redis
from redis.connection import parse_url
from redis.exceptions import ClusterDownError, MovedError, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.sentinel import MasterNotFoundError, Sentinel

from fairlane.config.topology import Address, Topology
from fairlane.store.connection.tls_errors import options_of
from fairlane.store.keys import Keys

ASK_TIMEOUT_S = 1.0
MOST_HOPS = 5


Find: TypeAlias = Callable[[], Address]
"""Finds the server that takes writes. Raises redis-py's ``ConnectionError`` while there is none."""


class SentinelFinder:
    """Asks Sentinels, and then the server whether it agrees: a Sentinel may be behind."""

    def __init__(self, topology: Topology) -> None:
        self._topology, self._service = topology, topology.service
        asking = {"socket_timeout": ASK_TIMEOUT_S, "socket_connect_timeout": ASK_TIMEOUT_S}
        self._sentinel = Sentinel(
            topology.nodes, sentinel_kwargs={**asking, **_tls(topology), **dict(topology.sentinel)}
        )

    def find(self) -> Address:
        """See `Find`."""
        try:
            host, port = self._sentinel.discover_master(self._service)
        except MasterNotFoundError as error:
            # Its own message lists every connection that was tried.
            raise RedisConnectionError(self._not_found(str(error))) from self._refusal()
        address = str(host), int(port)
        with _open(self._topology, address) as server:
            try:
                role: Any = server.execute_command("ROLE")
            except NoPermissionError:
                return address  # this user may not ask; a replica refuses writes anyway
        if role[0] not in (b"master", "master"):
            raise RedisConnectionError(f"{host}:{port} is to be the primary and is not yet")
        return address

    def _refusal(self) -> Exception | None:
        """The error of a Sentinel, or of TLS to it, which the client's error hides."""
        try:
            self._sentinel.sentinels[0].ping()
        except (RedisError, OSError) as error:
            return error
        return None

    def _not_found(self, said: str) -> str:
        where = ", ".join(f"{host}:{port}" for host, port in self._topology.nodes)
        if "AuthenticationError" in said:
            return f"the Sentinels at {where} refuse us: sentinel_password is missing or wrong"
        if "ConnectionError" in said or "TimeoutError" in said:
            return f"no Sentinel that answers at {where} has a primary for {self._service!r}"
        return f"no Sentinel at {where} has a primary for {self._service!r}"


class ClusterFinder:
    """Asks a node for a key of the deployment: it has the key, or names the node that has it.

    All keys of a deployment carry one hash tag, so one node has them all.
    """

    def __init__(self, topology: Topology, deployment: str) -> None:
        self._topology, self._key = topology, Keys(deployment).catalog
        self._last: Address | None = None

    def find(self) -> Address:
        """See `Find`."""
        problem: Exception | None = None
        for address in self._candidates():
            try:
                self._last = self._follow(address)
            except NoPermissionError:
                raise
            except (RedisError, OSError) as error:
                problem = error
            else:
                return self._last
        raise RedisConnectionError(
            f"no node of the cluster says which one has our keys: {problem}"
        ) from problem

    def _candidates(self) -> Iterator[Address]:
        if self._last is not None:
            yield self._last
        yield from (node for node in self._topology.nodes if node != self._last)

    def _follow(self, address: Address) -> Address:
        for _ in range(MOST_HOPS):
            try:
                with _open(self._topology, address) as node:
                    node.exists(self._key)
            except MovedError as moved:
                # No host means the one that answers.
                address = str(moved.host) or address[0], int(moved.port)
            else:
                return address
        raise ClusterDownError(f"the nodes do not agree which of them has the slot of {self._key}")


def finder_of(topology: Topology, deployment: str) -> Find:
    """The finder of the primary for this kind of topology."""
    if topology.service is None:
        return ClusterFinder(topology, deployment).find
    return SentinelFinder(topology).find


def _open(topology: Topology, address: Address) -> Redis:
    url = topology.server_url(address)
    return Redis.from_url(
        url, socket_timeout=ASK_TIMEOUT_S, socket_connect_timeout=ASK_TIMEOUT_S, **options_of(url)
    )


def _tls(topology: Topology) -> dict[str, Any]:
    """Connection options of a Sentinel: the TLS of the servers."""
    url = topology.server_url(topology.nodes[0])
    stated = {name: value for name, value in parse_url(url).items() if name.startswith("ssl_")}
    return {"ssl": True, **stated, **options_of(url)} if topology.scheme == "rediss" else {}

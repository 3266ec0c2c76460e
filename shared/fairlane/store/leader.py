"""One leader at a time: a lease in Redis whose epoch fences out every earlier holder."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.script import script


@dataclass(frozen=True, slots=True)
class Leadership:
    """The answer to a bid: ``epoch`` 0 where somebody else leads until ``until_ms`` (server time)."""

    epoch: int
    until_ms: int


class LeaderLease:
    """Bids for, renews and resigns leadership under one identity."""

    def __init__(self, redis: RedisClient, keys: Keys, identity: str, lease_ms: int) -> None:
        self._redis, self._keys, self._identity, self._lease_ms = redis, keys, identity, lease_ms

    def acquire(self, now_ms: str | int = "") -> Leadership:
        """Take or renew the lease."""
        reply = (
            script("leader_acquire")
            .bind(
                {"leader": self._keys.leader},
                {"now_ms": now_ms, "id": self._identity, "lease_ms": self._lease_ms},
            )
            .run(self._redis)
        )
        return Leadership(int(reply[0]), int(reply[1]))

    def resign(self) -> bool:
        """Let a standby take over at once."""
        call = script("leader_resign").bind({"leader": self._keys.leader}, {"id": self._identity})
        return bool(call.run(self._redis) == 1)

    def server(self) -> str | None:
        """The server process that the last leader found: another one may have forgotten its last second."""
        noted = self._redis.hget(self._keys.leader, "server")
        return None if noted is None else str(noted.decode())

    def note_server(self, server: str) -> None:
        """Keep for the next leader which server process holds the state."""
        self._redis.hset(self._keys.leader, "server", server)

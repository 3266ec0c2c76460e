"""The deployment's time, by which all decisions are made, and restarts of the Redis server."""

from dataclasses import dataclass
from typing import Protocol

from fairlane.core.clock import Clock
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.run_queries import read_time
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leader import LeaderLease

ASK_AGAIN_MS = 1000


class ServerTime(Protocol):
    """The time that scripts and scheduler share."""

    def argument(self) -> str | int:
        """The value that scripts take as ``now_ms``."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class RedisTime:
    """The server's clock, which scripts read themselves, so a skewed machine does no harm.

    The scheduler reads it once a second and interpolates. It only decides when to act: scripts check again.
    """

    def __init__(self, redis: RedisClient, keys: Keys, clock: Clock) -> None:
        self._redis, self._keys, self._clock = redis, keys, clock
        self._asked_ms: int | None = None
        self._answer_ms = 0

    def argument(self) -> str:
        """Empty: scripts read the server's clock."""
        return ""

    def now_ms(self) -> int:
        """The server's time, read at most a second ago and interpolated since."""
        local = self._clock.monotonic_ms()
        if self._asked_ms is None or local - self._asked_ms >= ASK_AGAIN_MS:
            self._asked_ms, self._answer_ms = local, read_time(self._redis, self._keys).now_ms
        return self._answer_ms + local - self._asked_ms


@dataclass(frozen=True, slots=True)
class Moment:
    """The time and the epoch of one tick. Scripts take ``argument`` as their ``now_ms``."""

    epoch: int
    monotonic_ms: int
    server_ms: int
    argument: str | int = ""


class RedisRestarts:
    """Detects that the server has restarted since the last leader saw it, and empties the lanes' buckets.

    A restarted server may have lost its last second of permits, so every lane starts empty and cannot burst.
    Heartbeats from before the restart do not count: a worker counts again once it beats again.
    """

    def __init__(self, lease: LeaderLease, lanes: Lanes, time: ServerTime) -> None:
        self._lease = lease
        self._lanes = lanes
        self._time = time
        self._server_id: str | None = None
        self.since_ms = 0  # when the last restart was detected (server time)

    def look(self) -> None:
        """Empty the buckets of all lanes if the server's identity has changed."""
        server = self._lease.server()
        known = self._lease.noted_server() or self._server_id
        if server is not None and known not in (None, server):
            for lane in self._lanes.names():
                self._lanes.drain(lane, self._time.argument())
            self.since_ms = self._time.now_ms()
        if server is not None:
            self._lease.note_server(server)
        self._server_id = server

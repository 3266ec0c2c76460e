"""One leader at a time: a lease in Redis whose epoch fences out every earlier holder, and its wake-ups."""

import json
import re
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from fairlane.model.choices import SPEC_VERSION
from fairlane.model.run import RunRef
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys, Stored
from fairlane.store.verbs import script

BIDS_PER_LEASE = 3
MARKS_AT_ONCE = 1000
WORKERS = "*"

_WORK = re.compile(r"(.*)\|([A-Za-z0-9_-]{1,64}/[A-Za-z0-9_-]{1,64})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Leadership:
    """The reply to a bid: ``epoch`` 0 if another scheduler leads until ``until_ms`` (server time).

    ``stepped_ms``: by how many milliseconds Redis' clock has stepped back since any scheduler's last bid.
    """

    epoch: int
    until_ms: int
    stepped_ms: int = 0


class LeaderLease:
    """Bids for, renews and resigns leadership as one holder.

    ``identity``: the scheduler's name, as people see it. ``token``: random and hexadecimal, so that only one
    of two schedulers with the same name leads.
    """

    def __init__(self, redis: RedisClient, keys: Keys, identity: str, lease_ms: int, token: str = "") -> None:
        self._redis, self._keys, self._lease_ms = redis, keys, lease_ms
        self._holder = f"{identity}#{token}" if token else identity

    def acquire(self, now_ms: str | int = "") -> Leadership:
        """Acquire or renew the lease."""
        keys = {"leader": self._keys.leader, "clock": self._keys.clock}
        values = {"now_ms": now_ms, "id": self._holder, "lease_ms": self._lease_ms, "specs": SPEC_VERSION}
        call = script("leader_acquire").bind(keys, values)
        return Leadership(**json.loads(call.run(self._redis)))

    def resign(self) -> bool:
        """End the lease, so that a standby leads at once; false if this is not the holder."""
        call = script("leader_resign").bind({"leader": self._keys.leader}, {"id": self._holder})
        return bool(call.run(self._redis) == 1)

    def server(self) -> str | None:
        """The server's ``run_id``; ``None`` if it has none, or the account may not ask."""
        try:
            return str(self._redis.info("server").get("run_id"))
        except ResponseError:
            return None

    def noted_server(self) -> str | None:
        """The server process that the last leader saw; a new one may have lost the last second of writes."""
        noted = self._redis.hget(self._keys.leader, "server")
        return None if noted is None else str(noted.decode())

    def note_server(self, server: str) -> None:
        """Note which server process holds the state, for the next leader."""
        self._redis.hset(self._keys.leader, "server", server)


class NotLeader(Exception):
    """This scheduler's epoch has ended: another scheduler leads, or may."""


class Leader:
    """Renews three times per lease, also within a pass. A leader that misses a whole lease is replaced and
    fenced out.
    """

    def __init__(self, lease: LeaderLease, lease_ms: int) -> None:
        self._lease, self._interval_ms = lease, lease_ms // BIDS_PER_LEASE
        self._due_ms = 0
        self.epoch = 0
        self._stepped_ms = 0

    @property
    def leads(self) -> bool:
        """Whether this scheduler led when it last bid; scripts check the epoch themselves."""
        return self.epoch > 0

    def tick(self, monotonic_ms: int, server_now: str | int = "") -> bool:
        """Bid if it is time; true if a term of this scheduler has just begun."""
        if monotonic_ms < self._due_ms:
            return False
        before, self.epoch = self.epoch, self._bid(server_now)
        self._due_ms = monotonic_ms + self._interval_ms
        return self.leads and self.epoch != before

    def confirm(self, server_now: str | int = "") -> None:
        """Renew at once. Raises `NotLeader` if the term has ended: recent changes may not count."""
        if self._bid(server_now) != self.epoch:
            raise NotLeader

    def renew(self, monotonic_ms: int, server_now: str | int = "") -> None:
        """`confirm` if it is time to bid."""
        if monotonic_ms >= self._due_ms:
            self.confirm(server_now)
            self._due_ms = monotonic_ms + self._interval_ms

    def take_stepped_ms(self) -> int:
        """By how many milliseconds Redis' clock has stepped back since the last call, as bids found."""
        stepped_ms, self._stepped_ms = self._stepped_ms, 0
        return stepped_ms

    def _bid(self, server_now: str | int) -> int:
        bid = self._lease.acquire(server_now)
        self._stepped_ms += bid.stepped_ms
        return bid.epoch

    def wait_ms(self, monotonic_ms: int) -> int:
        """Milliseconds until the next bid."""
        return max(0, self._due_ms - monotonic_ms)

    def deposed(self) -> None:
        """Bid again at once, because a script rejected the epoch or Redis was unreachable."""
        self.epoch, self._due_ms = 0, 0

    def resign(self) -> None:
        """End the term at once, so that a standby need not wait for the lease to lapse."""
        if self.leads:
            self._lease.resign()
            self.epoch = 0


@dataclass(slots=True)
class Marks:
    """Changes that scripts have marked: lanes, runs' jobs on a lane, or the workers.

    ``more``: some marks are left. ``due_ms``: end of the next back-off (server time).
    """

    lanes: set[str] = field(default_factory=set)
    work: list[tuple[str, RunRef]] = field(default_factory=list)
    workers: bool = False
    more: bool = False
    due_ms: int | None = None


class Wakeups(Stored):
    """Takes each mark once, and only for the leader, because no other scheduler would see it again.

    It costs one round trip a tick, which also reads when the next back-off ends.
    """

    def take(self, epoch: int) -> Marks:
        """All marks, a bounded number at a time. Raises `NotLeader`, and then takes none."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hget(self._keys.leader, "epoch")
        pipeline.spop(self._keys.dirty, MARKS_AT_ONCE)
        pipeline.zrange(self._keys.delayed, 0, 0, withscores=True)
        leading, taken, soonest = pipeline.execute()
        if int(leading or 0) != epoch:
            self._put_back(taken)
            raise NotLeader
        marks = _read(sorted(raw.decode() for raw in taken))
        marks.due_ms = int(soonest[0][1]) if soonest else None
        return marks

    def _put_back(self, taken: list[bytes]) -> None:
        if taken:
            self._redis.sadd(self._keys.dirty, *taken)
            self._redis.publish(self._keys.wake, "")


def _read(entries: list[str]) -> Marks:
    marks = Marks(more=len(entries) == MARKS_AT_ONCE)
    for entry in entries:
        if entry == WORKERS:
            marks.workers = True
            continue
        marks.lanes.add(entry)
        # A lane's name may itself look like "<lane>|<run ref>": then both readings count.
        if work := _WORK.fullmatch(entry):
            marks.lanes.add(work[1])
            marks.work.append((work[1], RunRef.parse(work[2])))
    return marks


def discard_mistyped(redis: RedisClient, key: str, wanted: str) -> bool:
    """Delete a key unless it has the ``wanted`` type; false if it has, or is gone. Raises `RedisError`."""
    return bool(script("key_discard").bind({"damaged": key}, {"wanted": wanted}).run(redis))

"""This scheduler's bid to be the one that grants."""

from __future__ import annotations

from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.store.leader import LeaderLease

log = get_logger("leader")

BIDS_PER_LEASE = 3


class NotLeader(Exception):
    """This scheduler's epoch is over: another one leads, or may."""


class Leader:
    """Renews three times a lease; whoever misses a whole lease is replaced and fenced out."""

    def __init__(self, lease: LeaderLease, lease_ms: int) -> None:
        self._lease, self._interval_ms = lease, lease_ms // BIDS_PER_LEASE
        self._due_ms = 0
        self.epoch = 0

    @property
    def leads(self) -> bool:
        """Whether this scheduler led when it last bid; scripts check the epoch itself."""
        return self.epoch > 0

    def tick(self, monotonic_ms: int, server_now: str | int = "") -> bool:
        """Bid if it is time; true where a term of this scheduler has just begun."""
        if monotonic_ms < self._due_ms:
            return False
        before, self.epoch = self.epoch, self._lease.acquire(server_now).epoch
        self._due_ms = monotonic_ms + self._interval_ms
        if self.epoch == before:
            return False
        log.info(Event.LEADER_ELECTED if self.leads else Event.LEADER_LOST, epoch=self.epoch or before)
        return self.leads

    def confirm(self, server_now: str | int = "") -> None:
        """Renew at once. Raises `NotLeader` where the term has ended since: what it did may be void."""
        if self._lease.acquire(server_now).epoch != self.epoch:
            raise NotLeader

    def wait_ms(self, monotonic_ms: int) -> int:
        """Until the next bid."""
        return max(0, self._due_ms - monotonic_ms)

    def deposed(self) -> None:
        """A script refused our epoch, or Redis was away: bid again at once."""
        self.epoch, self._due_ms = 0, 0

    def resign(self) -> None:
        """Hand over without making a standby wait."""
        if self.leads:
            self._lease.resign()
            self.epoch = 0

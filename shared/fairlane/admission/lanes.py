"""Lanes in Redis: grant permits, change limits, stop and go, and read how each one stands."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from pydantic import ValidationError

from fairlane.admission.memory import LEARNED
from fairlane.admission.views import LaneView, read_view, stored_limit
from fairlane.errors import ConfigurationError, LaneNotFound
from fairlane.lane import LaneLimits
from fairlane.store.attempts import headroom_keys
from fairlane.store.audit import UNNAMED, Act, Auditor
from fairlane.store.connect import RedisClient
from fairlane.store.entry import Entry
from fairlane.store.keys import Keys, RunRef
from fairlane.store.script import script
from fairlane.tokens import Estimate

Limit: TypeAlias = float | bool | str | None
"""A value of `LaneLimits`, or ``None`` for none."""

VIEWED_AT_ONCE = 100
BILLION = 10**9  # shares are kept in billionths


class Offer(NamedTuple):
    """A run that may take up to ``most`` permits in turn.

    ``ahead``: most of its items whose task has begun and whose evaluations are not over; 0: any number.
    """

    ref: RunRef
    most: int
    ahead: int = 0


class Allotment(NamedTuple):
    """Parts of a lane, of 1: what is kept for a team also while it does not use it, and the most it may
    take.
    """

    own: float = 0.0
    most: float = 1.0


class Kept(NamedTuple):
    """A run that its own bounds hold back on a lane: which bound, and until when (server time; 0: until
    woken).
    """

    offer: int
    bound: str
    until_ms: int
    in_flight: int


class Permit(NamedTuple):
    """A granted attempt: which offer it came from, its dispatch number, its entry in the queue, and its share
    of the lane: what its team is charged."""

    offer: int
    number: int
    entry: Entry
    share: float = 0.0

    @property
    def job(self) -> int:
        return self.entry.job


@dataclass(frozen=True, slots=True)
class Grant:
    """A lane's answer. ``at_ms``: ask again then (server time; 0: when woken). ``left``: queued, by offer.

    ``window``: most calls that the lane may have in flight. ``owed``: by team, what its calls took beyond
    their shares as they were granted, negative where it was less. ``pending``: of ``in_flight``, those that
    hold no worker's slot: their provider is only asked for them.
    """

    permits: Sequence[Permit]
    at_ms: int
    reason: str
    in_flight: int
    left: Sequence[int]
    now_ms: int
    kept: Sequence[Kept] = ()
    window: int = 0
    owed: Mapping[str, float] = field(default_factory=dict)
    pending: int = 0

    @property
    def wait_ms(self) -> int:
        """Milliseconds until ``at_ms``, by the server's clock."""
        return max(0, self.at_ms - self.now_ms)


class Lanes:
    """All lanes of a deployment."""

    def __init__(self, redis: RedisClient, keys: Keys, auditor: Auditor = UNNAMED) -> None:
        self._redis, self._keys, self._auditor = redis, keys, auditor

    def names(self) -> list[str]:
        """Every lane that was configured or used."""
        return sorted(lane.decode() for lane in self._redis.smembers(self._keys.lanes))

    def grant(
        self,
        lane: str,
        epoch: int,
        offers: Sequence[Offer],
        *,
        room: int,
        max_in_flight: int,
        lease_ms: int,
        now_ms: str | int = "",
        allotments: Mapping[str, Allotment] | None = None,
    ) -> Grant | None:
        """As many permits as the lane gives now, in the order offered; ``None`` if this is not the leader.

        ``allotments``: what the lane keeps for teams, and the most of each; of all others nothing is said.
        """
        keys = self._keys
        queues = [
            name
            for ref, *_ in offers
            for name in (keys.hot(ref, lane), keys.fresh(ref, lane), keys.jobs(ref), keys.state(ref))
        ] + [keys.budget(ref.team) for ref, *_ in offers]
        reply = (
            script("permit_grant")
            .bind(
                {
                    "leader": keys.leader,
                    "lane": keys.lane(lane),
                    "limits": keys.limits(lane),
                    "owed": keys.owed(lane),
                    "flying": keys.flying(lane),
                    "allotted": keys.allotted(lane),
                    "leases": keys.leases,
                    "leased": keys.leased,
                    "starved": keys.starved,
                    **headroom_keys(keys, lane),
                    "queues": queues,
                },
                {
                    "now_ms": now_ms,
                    "epoch": epoch,
                    "name": lane,
                    "room": room,
                    "max_in_flight": max_in_flight,
                    "lease_ms": lease_ms,
                    "allotments": json.dumps(allotments) if allotments else "",
                    "offers": json.dumps([[str(ref), most, ahead] for ref, most, ahead in offers]),
                },
            )
            .run(self._redis)
        )
        if reply is None:
            return None
        flat, at_ms, reason, in_flight, left, now, held, window, owed, pending = reply
        permits = [
            Permit(
                flat[i] - 1,
                flat[i + 2],
                Entry(flat[i + 1], Estimate(*flat[i + 3 : i + 5]), flat[i + 5]),
                float(flat[i + 6]),
            )
            for i in range(0, len(flat), 7)
        ]
        corrections = {owed[i].decode(): int(owed[i + 1]) / BILLION for i in range(0, len(owed), 2)}
        kept = [
            Kept(held[i] - 1, held[i + 1].decode(), int(held[i + 2]), int(held[i + 3] or 0))
            for i in range(0, len(held), 4)
        ]
        return Grant(
            permits,
            int(at_ms),
            reason.decode(),
            int(in_flight),
            [int(n) for n in left],
            int(now),
            kept,
            int(window),
            corrections,
            int(pending),
        )

    def limit(self, lane: str, limits: Mapping[str, Limit]) -> bool:
        """Set limits by their names in `LaneLimits`; ``None`` takes one away. True if the lane is new.

        Raises `ConfigurationError` for a limit that there is not or that makes no sense; nothing is written.
        """
        made = _require_sense(lane, limits)
        fields: dict[str, str | None] = {}
        for name, value in limits.items():
            field, text = stored_limit(name, getattr(made, name))
            fields[field] = None if value is None else text
        call = script("lane_limit").bind(
            {
                "lanes": self._keys.lanes,
                "limits": self._keys.limits(lane),
                "dirty": self._keys.dirty,
                "audit": self._keys.audit,
            },
            {
                "channel": self._keys.wake,
                "control": self._keys.control,
                "name": lane,
                "fields": json.dumps(fields),
                "audit": self._auditor.entry(Act.LIMITED, lane, after=fields),
            },
        )
        return bool(call.run(self._redis) == 1)

    def configure(self, lane: str, limits: LaneLimits | None) -> bool:
        """Make a lane known, with what the configuration says of it. True if it is new.

        What the configuration said before is not said again: limits set while running stay until it changes.
        """
        stated = limits.model_dump(exclude_unset=True) if limits else {}
        said = json.loads(self._redis.hget(self._keys.configured, lane) or "{}")
        known = LaneLimits.model_fields.keys() & {*said, *stated}  # a later version may have said more
        changed = {name: stated.get(name) for name in known if said.get(name) != stated.get(name)}
        new = self.limit(lane, changed)
        if changed:
            self._redis.hset(self._keys.configured, lane, json.dumps(stated))
        return new

    def pause(self, lane: str) -> None:
        """Nothing new starts on the lane until `resume`. Raises `LaneNotFound`."""
        call = script("lane_pause").bind(
            {"lanes": self._keys.lanes, "lane": self._keys.lane(lane), "audit": self._keys.audit},
            {"name": lane, "audit": self._auditor.entry(Act.PAUSED, lane)},
        )
        if call.run(self._redis) == 0:
            raise LaneNotFound(lane, self.names())

    def resume(self, lane: str, now_ms: str | int = "") -> None:
        """Open a paused lane, or a parked one with a single probe. Raises `LaneNotFound`."""
        call = script("lane_resume").bind(
            {
                "lanes": self._keys.lanes,
                "lane": self._keys.lane(lane),
                "dirty": self._keys.dirty,
                "audit": self._keys.audit,
            },
            {
                "now_ms": now_ms,
                "channel": self._keys.wake,
                "name": lane,
                "audit": self._auditor.entry(Act.OPENED, lane),
            },
        )
        if call.run(self._redis) == 0:
            raise LaneNotFound(lane, self.names())

    def inherit(self, lane: str, source: str, since_ms: int, now_ms: str | int = "") -> bool:
        """Start from what another lane has learned; nothing else of it is taken over. True if it was done.

        Once for a ``since_ms``; where that is 0, only while the lane was never used.
        """
        keys = {
            "lane": self._keys.lane(lane),
            "from": self._keys.lane(source),
            "limits": self._keys.limits(lane),
        }
        told = {"now_ms": now_ms, "since_ms": since_ms, "fields": json.dumps(LEARNED)}
        return bool(script("lane_inherit").bind(keys, told).run(self._redis) == 1)

    def drain(self, lane: str, now_ms: str | int = "") -> None:
        """Empty the lane's buckets: nothing bursts after Redis came back."""
        keys = {
            "lane": self._keys.lane(lane),
            "limits": self._keys.limits(lane),
            "audit": self._keys.audit,
        }
        told = self._auditor.entry(Act.DRAINED, lane)
        script("lane_drain").bind(keys, {"now_ms": now_ms, "audit": told}).run(self._redis)

    def flying(self, lanes: Sequence[str]) -> list[dict[str, int]]:
        """Calls in flight by team, lane by lane."""
        pipeline = self._redis.pipeline(transaction=False)
        for lane in lanes:
            pipeline.hgetall(self._keys.flying(lane))
        return [{team.decode(): int(count) for team, count in found.items()} for found in pipeline.execute()]

    def on_slots(self, lanes: Sequence[str]) -> dict[str, int]:
        """Attempts that hold a permit and a worker's slot, by lane."""
        pipeline = self._redis.pipeline(transaction=False)
        for lane in lanes:
            pipeline.hmget(self._keys.lane(lane), "inflight", "pending")
        found = zip(lanes, pipeline.execute(), strict=True)
        return {lane: int(held or 0) - int(pending or 0) for lane, (held, pending) in found}

    def view(self, lane: str, now_ms: str | int = "") -> LaneView:
        """How one lane stands. Raises `LaneNotFound`."""
        if not self._redis.sismember(self._keys.lanes, lane):
            raise LaneNotFound(lane, self.names())
        return self.views([lane], now_ms)[0]

    def views(self, lanes: Sequence[str], now_ms: str | int = "") -> list[LaneView]:
        """How these lanes stand, a hundred at one moment; one that nobody knows looks like one never used."""
        found = []
        for first in range(0, len(lanes), VIEWED_AT_ONCE):
            some = lanes[first : first + VIEWED_AT_ONCE]
            owned = [key for lane in some for key in (self._keys.lane(lane), self._keys.limits(lane))]
            now, *replies = script("lane_view").bind({"lanes": owned}, {"now_ms": now_ms}).look(self._redis)
            found += [
                read_view(lane, _pairs(state), _pairs(limits), json.loads(told), int(now))
                for lane, (state, limits, told) in zip(some, replies, strict=True)
            ]
        return found


def _require_sense(lane: str, limits: Mapping[str, Limit]) -> LaneLimits:
    stated = {name: value for name, value in limits.items() if value is not None}
    try:
        made = LaneLimits.model_validate(stated)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        raise ConfigurationError(
            f"lanes.{lane}.{name}",
            limits.get(name),
            first["msg"],
            f"Limits are {', '.join(LaneLimits.model_fields)}",
        ) from None
    for name in stated:
        value = getattr(made, name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigurationError(f"lanes.{lane}.{name}", value, "is not finite", "0 is no limit")
    return made


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}

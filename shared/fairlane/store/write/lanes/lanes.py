"""Lanes in Redis: changes limits, pauses and resumes, and reads the state of each lane."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pydantic import ValidationError

from fairlane.core.errors import ConfigurationError, LaneNotFound
from fairlane.core.section import descriptions, first_flaw
from fairlane.model.lane import LaneLimits
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.run_queries import ask_each
from fairlane.store.write.attempts import bound, named_keys
from fairlane.store.write.audit import UNNAMED, Act, Auditor
from fairlane.store.write.lanes.lane_memory import LEARNED
from fairlane.store.write.lanes.lane_view import LaneView, read_view, stored_limit
from fairlane.store.write.permits import Permits, as_object

Limit: TypeAlias = float | bool | str | None
"""A value of `LaneLimits`, or ``None`` for none."""

VIEWED_AT_ONCE = 100

_FAILURES = (
    *("circuit", "down_ms", "open_ms", "last_error_ms", "last_error"),
    *("answered_n", "paused", "parked", "probe_ended_ms"),
)


class LaneFailures(NamedTuple):
    """A lane's failures; times are server milliseconds.

    ``down_ms``: since when it has answered no call, ``None`` while its circuit is closed. ``probe_ms``: until
    when it is not probed, ``None`` while a probe is in flight. Its latest failure ended at ``failed_ms``,
    with ``error``. ``answered_n`` is the latest permit whose call succeeded. ``stopped``: paused or parked.
    ``first_ms``: when the first failure ended that no later answer has followed, in any state of its circuit.
    ``probe_failed_ms``: when its latest probe failed; 0 if none did.
    """

    down_ms: int | None
    probe_ms: int | None
    failed_ms: int
    error: str
    answered_n: int
    stopped: bool
    first_ms: int | None
    probe_failed_ms: int


class Lanes(Permits):
    """All lanes of a deployment: `Permits`, and what operators see and change."""

    def __init__(self, redis: RedisClient, keys: Keys, auditor: Auditor = UNNAMED) -> None:
        super().__init__(redis, keys)
        self._auditor = auditor

    def names(self) -> list[str]:
        """Every lane that was configured or used."""
        return sorted(lane.decode() for lane in self._redis.smembers(self._keys.lanes))

    def knows(self, lane: str) -> bool:
        """Whether a lane of that name was configured or used."""
        return bool(self._redis.sismember(self._keys.lanes, lane))

    def limit(self, lane: str, limits: Mapping[str, Limit], now_ms: str | int = "") -> bool:
        """Set limits by their names in `LaneLimits`; ``None`` removes one. True if the lane is new.

        Raises `ConfigurationError` for an unknown or invalid limit; then it writes nothing.
        """
        made = _require_sense(lane, limits)
        fields: dict[str, str | None] = {}
        for name, value in limits.items():
            field, text = stored_limit(name, getattr(made, name))
            fields[field] = None if value is None else text
        audit, keys = self._auditor.entry(Act.LIMITED, lane, after=fields), named_keys(self._keys, lane=lane)
        call = bound("lane_limit", keys, now_ms=now_ms, name=lane, fields=json.dumps(fields), audit=audit)
        return bool(call.run(self._redis) == 1)

    def configure(self, lane: str, limits: LaneLimits | None) -> bool:
        """Make a lane known, with its configured limits. True if it is new.

        An unchanged configuration has no effect: limits that were set at run time stay until it changes.
        """
        stated = limits.model_dump(exclude_unset=True) if limits else {}
        said = json.loads(self._redis.hget(self._keys.configured, lane) or "{}")
        known = LaneLimits.model_fields.keys() & {*said, *stated}  # a later version may have written more
        changed = {name: stated.get(name) for name in known if said.get(name) != stated.get(name)}
        new = self.limit(lane, changed)
        if changed:
            self._redis.hset(self._keys.configured, lane, json.dumps(stated))
        return new

    def stated(self) -> dict[str, dict[str, Limit]]:
        """The limits that `configure` wrote last, by lane; without lanes that have none."""
        found = self._redis.hgetall(self._keys.configured)
        said = {lane.decode(): json.loads(limits) for lane, limits in found.items()}
        return {lane: limits for lane, limits in said.items() if limits}

    def has_stated(self, lane: str, name: str, text: str) -> bool:
        """Whether `configure` has set that limit and it still holds; ``text`` as it is stored."""
        said = json.loads(self._redis.hget(self._keys.configured, lane) or "{}")
        return (
            str(said.get(name)) == text and self._redis.hget(self._keys.limits(lane), name) == text.encode()
        )

    def openers(self) -> dict[str, str]:
        """By lane outside the configuration, the team that opened it."""
        found = self._redis.hgetall(self._keys.openers)
        return {lane.decode(): team.decode() for lane, team in found.items()}

    def note_opener(self, lane: str, team: str) -> None:
        """Keep which team has opened a lane."""
        self._redis.hset(self._keys.openers, lane, team)

    def asked_ms(self, lanes: Sequence[str]) -> dict[str, int]:
        """When permits were last requested of these lanes (server time); 0: never."""
        found = ask_each(self._redis, lanes, lambda ask, lane: ask.hget(self._keys.lane(lane), "asked_ms"))
        return {lane: int(float(asked or 0)) for lane, asked in found}

    def forget(self, lane: str, epoch: int, unused_ms: int, now_ms: str | int = "") -> bool | None:
        """Forget a lane that was not used for ``unused_ms``, unless somebody has set its limits or paused it.

        ``None`` if this is not the leader.
        """
        stated = json.loads(self._redis.hget(self._keys.configured, lane) or "{}")
        fields = dict(stored_limit(name, value) for name, value in stated.items() if value is not None)
        call = bound(
            "lane_forget",
            named_keys(self._keys, lane=lane),
            now_ms=now_ms,
            epoch=epoch,
            name=lane,
            unused_ms=unused_ms,
            limits=json.dumps(fields),
        )
        forgotten = call.run(self._redis)
        return None if forgotten == -1 else bool(forgotten)

    def pause(self, lane: str) -> None:
        """Start no call on the lane until `resume`. Raises `LaneNotFound`."""
        audit, keys = self._auditor.entry(Act.PAUSED, lane), named_keys(self._keys, lane=lane)
        call = bound("lane_pause", keys, name=lane, audit=audit)
        if call.run(self._redis) == 0:
            raise LaneNotFound(lane, self.names())

    def resume(self, lane: str, now_ms: str | int = "") -> None:
        """End a lane's pause and waits, or open a parked one with a single probe. Raises `LaneNotFound`."""
        audit, keys = self._auditor.entry(Act.OPENED, lane), named_keys(self._keys, lane=lane)
        call = bound("lane_resume", keys, now_ms=now_ms, name=lane, audit=audit)
        if call.run(self._redis) == 0:
            raise LaneNotFound(lane, self.names())

    def failures(self, lanes: Sequence[str]) -> dict[str, LaneFailures]:
        """How each of these lanes fails its calls."""
        found = ask_each(self._redis, lanes, lambda ask, lane: ask.hmget(self._keys.lane(lane), *_FAILURES))
        return {lane: _read_failures(values) for lane, values in found}

    def inherit(self, lane: str, source: str, since_ms: int, now_ms: str | int = "") -> bool:
        """Let a lane start with another's learned limits. True if it was done.

        Done once for each ``since_ms``; with 0, only while the lane is unused.
        """
        keys = named_keys(self._keys, lane=lane)
        keys["from"] = self._keys.lane(source)
        call = bound("lane_inherit", keys, now_ms=now_ms, since_ms=since_ms, fields=json.dumps(LEARNED))
        return bool(call.run(self._redis) == 1)

    def drain(self, lane: str, now_ms: str | int = "") -> None:
        """Empty the lane's buckets, so that no burst follows a restart of Redis."""
        audit, keys = self._auditor.entry(Act.DRAINED, lane), named_keys(self._keys, lane=lane)
        bound("lane_drain", keys, now_ms=now_ms, audit=audit).run(self._redis)

    def in_flight(self, lanes: Sequence[str]) -> list[dict[str, int]]:
        """Calls in flight by team, lane by lane."""
        found = ask_each(self._redis, lanes, lambda ask, lane: ask.hgetall(self._keys.in_flight(lane)))
        return [{team.decode(): int(count) for team, count in teams.items()} for _, teams in found]

    def on_slots(self, lanes: Sequence[str]) -> dict[str, int]:
        """Attempts that hold a permit and a worker's slot, by lane."""
        fields = "inflight", "pending"
        found = ask_each(self._redis, lanes, lambda ask, lane: ask.hmget(self._keys.lane(lane), *fields))
        return {lane: int(held or 0) - int(pending or 0) for lane, (held, pending) in found}

    def await_slots(self, waiting: Sequence[str], lanes: Sequence[str]) -> dict[str, int]:
        """Have ``waiting`` lanes woken when a call frees its slot. Returns the slots in use of ``lanes``."""
        keys = named_keys(self._keys, lanes=[self._keys.lane(lane) for lane in lanes])
        found = bound("slots_await", keys, names=json.dumps(list(waiting))).run(self._redis)
        return dict(zip(lanes, map(int, found), strict=True))

    def recount(self, lanes: Sequence[str], epoch: int, lease_ms: int, now_ms: str | int = "") -> int:
        """Recount the calls in flight of all ``lanes`` from leases. Returns how many counts were wrong."""
        owned = [key for lane in lanes for key in (self._keys.lane(lane), self._keys.in_flight(lane))]
        call = bound(
            "lanes_recount",
            named_keys(self._keys, lanes=owned),
            now_ms=now_ms,
            epoch=epoch,
            lease_ms=lease_ms,
            names=json.dumps(list(lanes)),
        )
        return int(call.run(self._redis))

    def view(self, lane: str, now_ms: str | int = "") -> LaneView:
        """The state of one lane. Raises `LaneNotFound`."""
        if not self.knows(lane):
            raise LaneNotFound(lane, self.names())
        return self.views([lane], now_ms)[0]

    def views(self, lanes: Sequence[str], now_ms: str | int = "") -> list[LaneView]:
        """The states of these lanes, a hundred in one script; an unknown lane looks like an unused one."""
        found = []
        for first in range(0, len(lanes), VIEWED_AT_ONCE):
            some = lanes[first : first + VIEWED_AT_ONCE]
            owned = [key for lane in some for key in (self._keys.lane(lane), self._keys.limits(lane))]
            call = bound("lane_view", named_keys(self._keys, lanes=owned), now_ms=now_ms)
            reply = json.loads(call.look(self._redis))
            found += [
                read_view(
                    lane, as_object(each["state"]), as_object(each["limits"]), each["view"], reply["now_ms"]
                )
                for lane, each in zip(some, reply["lanes"], strict=True)
            ]
        return found


def _read_failures(values: Sequence[bytes | None]) -> LaneFailures:
    """Parse the values of the fields `_FAILURES`."""
    circuit, down, probe, failed, error, answered_n, paused, parked, probed = values
    return LaneFailures(
        down_ms=int(down) if down and circuit not in (None, b"closed") else None,
        probe_ms=int(probe) if probe and circuit == b"open" else None,
        failed_ms=int(failed or 0),
        error=(error or b"").decode(),
        answered_n=int(answered_n or 0),
        stopped=paused == b"1" or parked is not None,
        first_ms=int(down) if down else None,
        probe_failed_ms=int(probed or 0),
    )


def _require_sense(lane: str, limits: Mapping[str, Limit]) -> LaneLimits:
    stated = {name: value for name, value in limits.items() if value is not None}
    try:
        made = LaneLimits.model_validate(stated)
    except ValidationError as error:
        name, _, problem = first_flaw(error)
        known = LaneLimits.model_fields.get(name)
        raise ConfigurationError(
            f"lanes.{lane}.{name}",
            limits.get(name),
            problem if known else "there is no such limit",
            descriptions(LaneLimits).get(name) or f"Limits are {', '.join(LaneLimits.model_fields)}.",
        ) from None
    return made

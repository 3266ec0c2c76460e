"""Which connections share their lanes, by what their limits hang on and the credentials that workers tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fairlane.events import Event
from fairlane.lane import endpoint_id
from fairlane.lane_identity import (
    ANY_MODEL,
    credentials_by_variable,
    lane_identity,
    lane_under,
    share_lanes,
)
from fairlane.logs import get_logger
from fairlane.settings import Settings
from fairlane.store.scopes import Scope, Scopes
from fairlane.store.workers import Beat
from fairlane_scheduler.leader import NotLeader
from fairlane_scheduler.server_time import Moment

log = get_logger("lanes")


class LaneSharing:
    """Chooses whose name the lanes of each connection carry. What was chosen is in Redis and outlasts any
    scheduler; it changes where the configuration or the workers' credentials do.
    """

    def __init__(self, scopes: Scopes, settings: Settings) -> None:
        self._scopes, self._connections = scopes, settings.connections
        self._settled: dict[str, Scope] = {}
        self._chosen = self._choose((), 0)

    def reload(self) -> None:
        """Read what was settled last; what the configuration alone says besides holds at once."""
        self._settled = self._scopes.read()
        self._chosen = self._choose((), 0)

    def look(self, workers: Sequence[Beat], lanes: Callable[[], Sequence[str]], moment: Moment) -> bool:
        """Settle by what live workers hold; true where connections have joined or left each other.

        A credential that has changed opens those of its connection's ``lanes`` that are parked. Raises
        `NotLeader`.
        """
        before, chosen = self._settled, self._choose(workers, moment.server_ms)
        changes = {name: chosen.get(name) for name in before | chosen if before.get(name) != chosen.get(name)}
        if changes:
            rotated = {name: each for name, each in chosen.items() if _is_rotated(before.get(name), each)}
            concerned = [lane for lane in lanes() if self._is_of(lane, rotated)] if rotated else []
            fingerprints = {name: each.credential for name, each in rotated.items()}
            opened = self._scopes.settle(changes, fingerprints, concerned, moment.epoch, moment.argument)
            if opened is None:
                raise NotLeader
            _tell(before, chosen, opened)
        moved = _givers(self._chosen) != _givers(chosen)
        self._settled = self._chosen = chosen
        return moved

    def giver(self, connection: str) -> str:
        """Whose name the connection's lanes carry."""
        found = self._chosen.get(connection)
        return found.lanes if found else connection

    def published(self, connection: str) -> str:
        """What its lanes' names begin with; where all of its models share a lane, that lane."""
        known = self._connections[connection]
        return endpoint_id(known.base_url) if known.scope == "endpoint" else self.giver(connection)

    def carrier(self, lane: str) -> str:
        """The lane on which calls of a lane of that name go."""
        connection = lane.partition(":")[0]
        return lane_under(lane, self.giver(connection)) if connection in self._named() else lane

    def names(self, lane: str) -> list[str]:
        """What each connection that shares a lane would call it: its own name first."""
        own = lane.partition(":")[0]
        others = [name for name in self._named() if name != own and self.giver(name) == own]
        return [lane, *(lane_under(lane, other) for other in others)]

    def ancestor(self, lane: str) -> tuple[list[str], int]:
        """Lanes from one of which a lane may start, and since when; 0: only while it was never used."""
        own = self._chosen.get(lane.partition(":")[0])
        if own is not None and own.left:
            return [lane_under(lane, own.left)], own.left_ms
        return self.names(lane)[1:], 0

    def _named(self) -> list[str]:
        """Connections whose lanes have the name of a connection."""
        return [name for name, known in self._connections.items() if known.scope != "endpoint"]

    def _is_of(self, lane: str, scopes: Mapping[str, Scope]) -> bool:
        at_endpoints = {
            endpoint_id(known.base_url)
            for name in scopes
            if (known := self._connections[name]).scope == "endpoint"
        }
        named = {scope.lanes for name, scope in scopes.items() if name in self._named()}
        return lane in at_endpoints or lane.partition(":")[0] in named

    def _choose(self, workers: Sequence[Beat], now_ms: int) -> dict[str, Scope]:
        """The scopes as they are to be, by those that were settled last and what live workers hold."""
        before, connections = self._settled, self._connections
        scopes = {name: _informed(before.get(name, Scope(name)), name, workers) for name in connections}
        told = {name: each.credential for name, each in scopes.items() if each.credential}
        fingerprints = credentials_by_variable(connections, told)
        identities = {
            name: lane_identity(each, ANY_MODEL, fingerprints[name]) for name, each in connections.items()
        }
        holders = {
            name: {beat.worker for beat in workers if name in beat.info.credentials} for name in connections
        }

        def may_join(one: str, other: str) -> bool:
            """Calls that go where another connection's do meet all its workers, which must hold their key."""
            return holders[one] == holders[other] and bool(holders[one] or not (one in told or other in told))

        shared = share_lanes(identities, _givers(before), may_join)
        return {name: _placed(each, name, shared[name], now_ms) for name, each in scopes.items()}


def _informed(scope: Scope, connection: str, workers: Sequence[Beat]) -> Scope:
    """With the credential in force: one that is new, else the one before while a worker holds it."""
    credentials = [beat.info.credentials for beat in workers]
    held = tuple(sorted({each[connection] for each in credentials if connection in each}))
    if not held:
        return scope
    new = [each for each in held if each not in scope.held]
    in_force = new[0] if new else scope.credential if scope.credential in held else held[0]
    return replace(scope, credential=in_force, held=held)


def _placed(scope: Scope, connection: str, giver: str, now_ms: int) -> Scope:
    if giver == scope.lanes:
        return scope
    left, left_ms = (scope.lanes, now_ms) if giver == connection else ("", 0)
    return replace(scope, lanes=giver, left=left, left_ms=left_ms)


def _givers(scopes: Mapping[str, Scope]) -> dict[str, str]:
    return {name: scope.lanes for name, scope in scopes.items()}


def _is_rotated(before: Scope | None, now: Scope) -> bool:
    """Whether another credential is in force, or the last worker with an earlier one is gone."""
    old = before or Scope(now.lanes)
    return old.credential != now.credential or (len(old.held) > 1 and len(now.held) == 1)


def _tell(before: Mapping[str, Scope], chosen: Mapping[str, Scope], opened: Sequence[str]) -> None:
    for name, now in chosen.items():
        old = before.get(name, Scope(name))
        if old.credential not in ("", now.credential):
            log.warning(
                Event.CREDENTIAL_CHANGED, connection=name, fingerprint=now.credential, before=old.credential
            )
        if len(now.held) > 1 and now.held != old.held:
            log.warning(
                Event.CREDENTIALS_DIFFER, connection=name, fingerprint=now.credential, held=list(now.held)
            )
        if now.lanes not in (name, old.lanes):
            log.info(Event.LANES_JOINED, connection=name, lanes=now.lanes)
        elif now.lanes != old.lanes:
            log.warning(Event.LANES_PARTED, connection=name, before=old.lanes)
    for lane in opened:
        log.info(Event.LANE_REOPENED, lane=lane)

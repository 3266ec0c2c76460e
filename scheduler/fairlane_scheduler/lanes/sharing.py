"""Decides which connections share a rate limit, and after which connection their lanes are named."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.lane_identity import (
    ANY_MODEL,
    credentials_by_connection,
    lane_identity,
    lane_owners,
    lane_under,
)
from fairlane.core.events import Event
from fairlane.model.lane import endpoint_id
from fairlane.store.write.leader import NotLeader
from fairlane.store.write.scopes import Scope, Scopes
from fairlane.store.write.workers import Beat
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.state.server_time import Moment

log = get_logger("lanes")


class LaneSharing:
    """Decides which connections share a rate limit, from their scope and their credential fingerprints.

    Each connection's lanes have an owner: the connection after which they are named. Redis keeps this choice.
    It changes with the configuration or the workers' credentials.
    """

    def __init__(self, scopes: Scopes, connections: Mapping[str, Connection]) -> None:
        self._scopes = scopes
        self._connections = connections
        self._saved: dict[str, Scope] = {}
        self._renewals: dict[tuple[str, str], int] = {}
        """By worker and connection, how many times a new key has replaced a denied one."""
        self._adopt(self._choose((), 0))

    def _adopt(self, chosen: dict[str, Scope]) -> None:
        self._chosen = chosen
        self.owners = _owners(chosen)
        """By connection, the owner of its lanes."""

    def reload(self) -> None:
        """Read the saved choice; changes of the configuration alone apply at once."""
        self._saved = self._scopes.read()
        self._adopt(self._choose((), 0))

    def look(self, workers: Sequence[Beat], lanes: Callable[[], Sequence[str]], moment: Moment) -> bool:
        """Choose again from the credentials of live workers. True if connections start or stop sharing lanes.

        A changed credential unparks the parked ones of its connection's ``lanes``, and so does a renewed one
        of the same fingerprint. Raises `NotLeader`.
        """
        before, chosen = self._saved, self._choose(workers, moment.server_ms)
        changes = {name: chosen.get(name) for name in before | chosen if before.get(name) != chosen.get(name)}
        renewals = _renewals(workers)
        renewed = {key[1] for key, count in renewals.items() if count > self._renewals.get(key, 0)}
        if changes or renewed:
            rotated = {
                name: each
                for name, each in chosen.items()
                if name in renewed or _is_rotated(before.get(name), each)
            }
            news = {name: each for name, each in rotated.items() if _is_new(before.get(name), each)}
            concerned = [lane for lane in lanes() if self._uses(lane, rotated)] if rotated else []
            fingerprints = {name: each.credential for name, each in (news or rotated).items()}
            opened = self._scopes.save(
                changes, fingerprints, concerned, moment.epoch, moment.argument, known=not news
            )
            if opened is None:
                raise NotLeader
            _log_changes(before, chosen, opened)
        owners, self._saved, self._renewals = self.owners, chosen, renewals
        self._adopt(chosen)
        return self.owners != owners

    def publish(self) -> None:
        """Write protocol, scope and lanes of every connection, for clients and the command line.

        ``lanes``: the first part of its lanes' names; if all its models share one lane, that lane.
        ``models``: those that its settings list, if any. ``key``: true if it needs a key.
        """
        self._scopes.publish({name: self._published(name) for name in self._connections})

    def _published(self, name: str) -> dict[str, Any]:
        known = self._connections[name]
        fields: dict[str, Any] = {
            "protocol": known.protocol,
            "scope": known.scope,
            "lanes": endpoint_id(known.base_url) if known.scope == "endpoint" else self.owners[name],
        }
        if known.models:
            fields["models"] = list(known.models)
        if known.needed_key:
            fields["key"] = True
        return fields

    def canonical_lane(self, lane: str) -> str:
        """The lane that carries the calls of a lane of this name."""
        connection = lane.partition(":")[0]
        return lane_under(lane, self.owners[connection]) if connection in self._named() else lane

    def names(self, lane: str) -> list[str]:
        """The lane's name under each connection that shares it: its own name first."""
        own = lane.partition(":")[0]
        others = [name for name in self._named() if name != own and self.owners[name] == own]
        return [lane, *(lane_under(lane, other) for other in others)]

    def predecessors(self, lane: str) -> tuple[list[str], int]:
        """Lanes whose learned limits a lane may take over, and since when; 0: only before its first use."""
        own = self._chosen.get(lane.partition(":")[0])
        if own is not None and own.left:
            return [lane_under(lane, own.left)], own.left_ms
        return self.names(lane)[1:], 0

    def _named(self) -> list[str]:
        """Connections whose lanes are named after a connection, not after an endpoint."""
        return [name for name, known in self._connections.items() if known.scope != "endpoint"]

    def _uses(self, lane: str, scopes: Mapping[str, Scope]) -> bool:
        at_endpoints = {
            endpoint_id(known.base_url)
            for name in scopes
            if (known := self._connections[name]).scope == "endpoint"
        }
        named = {scope.lanes for name, scope in scopes.items() if name in self._named()}
        return lane in at_endpoints or lane.partition(":")[0] in named

    def _choose(self, workers: Sequence[Beat], now_ms: int) -> dict[str, Scope]:
        """Scopes by connection, from the saved ones and the credentials of live workers."""
        before, connections = self._saved, self._connections
        scopes = {name: _informed(before.get(name, Scope(name)), name, workers) for name in connections}
        reported = {name: each.credential for name, each in scopes.items() if each.credential}
        fingerprints = credentials_by_connection(connections, reported)
        identities = {
            name: lane_identity(each, ANY_MODEL, fingerprints[name]) for name, each in connections.items()
        }
        holders = {
            name: {beat.worker for beat in workers if name in beat.info.credentials} for name in connections
        }

        def may_join(one: str, other: str) -> bool:
            """Whether two connections may share: every worker of the owner must hold the other's key too."""
            return holders[one] == holders[other] and bool(
                holders[one] or not (one in reported or other in reported)
            )

        shared = lane_owners(identities, _owners(before), may_join)
        return {name: _placed(each, name, shared[name], now_ms) for name, each in scopes.items()}


def _informed(scope: Scope, connection: str, workers: Sequence[Beat]) -> Scope:
    """The scope with its credential in force: a new one, else the last one while a worker holds it."""
    credentials = [beat.info.credentials for beat in workers]
    held = tuple(sorted({each[connection] for each in credentials if connection in each}))
    if not held:
        return scope
    new = [each for each in held if each not in scope.held]
    in_force = new[0] if new else scope.credential if scope.credential in held else held[0]
    return replace(scope, credential=in_force, held=held)


def _placed(scope: Scope, connection: str, owner: str, now_ms: int) -> Scope:
    if owner == scope.lanes:
        return scope
    left, left_ms = (scope.lanes, now_ms) if owner == connection else ("", 0)
    return replace(scope, lanes=owner, left=left, left_ms=left_ms)


def _owners(scopes: Mapping[str, Scope]) -> dict[str, str]:
    return {name: scope.lanes for name, scope in scopes.items()}


def _renewals(workers: Sequence[Beat]) -> dict[tuple[str, str], int]:
    return {(beat.worker, name): count for beat in workers for name, count in beat.info.renewals.items()}


def _is_new(before: Scope | None, now: Scope) -> bool:
    """Whether the credential in force has changed."""
    return (before or Scope(now.lanes)).credential != now.credential


def _is_rotated(before: Scope | None, now: Scope) -> bool:
    """Whether the credential in force has changed, or the last worker with an older one is gone."""
    return _is_new(before, now) or (before is not None and len(before.held) > 1 and len(now.held) == 1)


def _log_changes(before: Mapping[str, Scope], chosen: Mapping[str, Scope], opened: Sequence[str]) -> None:
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

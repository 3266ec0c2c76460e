"""Maps models to lanes, which connections may share, and creates lanes in Redis before their first job."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.lane_identity import (
    ANY_MODEL,
    credentials_by_variable,
    lane_identity,
    lane_under,
    share_lanes,
)
from fairlane.core.errors import UnknownModel
from fairlane.core.events import Event
from fairlane.model.lane import (
    ENDPOINT_CONCURRENCY,
    FUNCTIONS,
    LaneLimits,
    endpoint_id,
    lane_key,
    split_model,
)
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leader import NotLeader
from fairlane.store.write.scopes import Scope, Scopes
from fairlane.store.write.workers import Beat
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.state.server_time import Moment

# Every worker polls a queue for each lane, and a row's template may name any model.
MOST_LANES = 1000
MOST_LANES_OF_TEAM = 200
MOST_CHARS = 200
SEPARATOR = "|"  # of a lane and a run in the marks of what has changed

log = get_logger("lanes")


class LaneRegistry:
    """Lanes of this deployment, from its connections."""

    def __init__(
        self,
        lanes: Lanes,
        sharing: LaneSharing,
        connections: Mapping[str, Connection],
        configured: Mapping[str, LaneLimits],
        limits_of: Callable[[str], LaneLimits | None],
        most_of_team: int = MOST_LANES_OF_TEAM,
    ) -> None:
        """``configured``: lanes of the configuration; ``limits_of`` adds the defaults of their providers.

        ``most_of_team``: lanes that a team may open which the configuration does not describe.
        """
        self.most_of_team = most_of_team
        self._lanes = lanes
        self._sharing = sharing
        self._connections = connections
        self._configured = configured
        self._limits_of = limits_of
        self._known: set[str] = set()
        self._undescribed: set[str] = set()  # lanes of endpoints that the configuration does not mention
        self._openers: dict[str, str] = {}
        self._opening: dict[str, str] = {}  # lanes that are named, and not yet created

    def reload(self) -> None:
        """Write lanes to Redis that the configuration or a provider's preset has changed.

        A limit that was set at run time stays until the configuration changes.
        """
        self._known.clear()
        self._openers = self._lanes.openers()
        self._opening.clear()
        for table in self._configured:
            self._log_overruled(table)
            self.ensure(self._sharing.canonical_lane(table))
        for lane in self._lanes.names():
            self._inherit(lane)
            if lane.partition(":")[0] in self._connections and self._limits(lane) is not None:
                self.ensure(lane)
            self._known.add(lane)

    def ensure(self, lane: str) -> bool:
        """Create a lane if it is new; whether it was."""
        if lane in self._known:
            return False
        limits = self._limits(lane)
        if lane in self._undescribed:
            if lane in self._lanes.names():  # a limit that was set at run time stays
                self._known.add(lane)
                return True
            known = limits.model_dump(exclude_unset=True) if limits else {}
            limits = LaneLimits.model_validate({"max_concurrency": ENDPOINT_CONCURRENCY, **known})
        source = self._inherit(lane)
        if self._lanes.configure(lane, limits):
            log.info(Event.LANE_CREATED, lane=lane, **({"learned_from": source} if source else {}))
        self._known.add(lane)
        if (team := self._opening.pop(lane, None)) is not None:
            self._openers[lane] = team
            self._lanes.note_opener(lane, team)
        return True

    @property
    def opening(self) -> int:
        """How many lanes are named, and not yet created."""
        return len(self._opening)

    def opened_by(self, team: str) -> int:
        """How many lanes a team has opened that the configuration does not describe."""
        return sum(each == team for opened in (self._openers, self._opening) for each in opened.values())

    def is_described(self, lane: str) -> bool:
        """Whether the configuration has a table of the lane."""
        return self._table(lane) in self._configured

    @property
    def openers(self) -> Mapping[str, str]:
        """The teams that have opened lanes which the configuration does not describe, by lane."""
        return self._openers

    def forget(self, lane: str) -> None:
        """Drop what is kept of a lane that is forgotten."""
        self._known.discard(lane)
        self._undescribed.discard(lane)
        self._openers.pop(lane, None)

    def forget_opening(self) -> None:
        """Drop the lanes that were named, and whose items never came to be fed."""
        self._opening.clear()

    def names(self) -> list[str]:
        """All lanes in Redis."""
        return self._lanes.names()

    def lane_of(self, model: str, configured: str | None = None, team: str | None = None) -> str:
        """``"<connection>:<model>"`` → lane; ``configured`` is the lane of a function, if its run sets one.

        ``team``: whose run names the model. Raises `UnknownModel`, also where the team has opened too many.
        """
        try:
            connection, name = split_model(model)
        except ValueError as error:
            raise UnknownModel(str(error)[:MOST_CHARS]) from None
        if connection == FUNCTIONS:
            for part in (name, configured or ""):
                _check_name(part, model)
            if SEPARATOR in f"{name}{configured}":
                raise UnknownModel(
                    f"model {model[:MOST_CHARS]!r}: a function's name and lane have no {SEPARATOR!r}"
                )
            lane = f"{FUNCTIONS}:{configured or name}"
            return self._opened(lane, model, team, endpoint=configured is not None)
        known = self._connections.get(connection)
        if known is None:
            raise UnknownModel(f"model {model[:MOST_CHARS]!r}: {self._hint(connection)}")
        _check_name(name, model)
        lane = lane_key(self._sharing.owner(connection), name, known.scope, known.base_url)
        return self._opened(lane, model, team, endpoint=known.scope == "endpoint")

    def _opened(self, lane: str, model: str, team: str | None, *, endpoint: bool = False) -> str:
        if lane not in self._known and lane not in self._opening:
            if len(self._known) + len(self._opening) >= MOST_LANES:
                problem = f"there are {MOST_LANES} lanes already, no more are opened"
                raise UnknownModel(f"model {model[:MOST_CHARS]!r}: {problem}")
            if team is not None and self.opened_by(team) >= self.most_of_team:
                problem = (
                    f"team {team} has opened {self.most_of_team} lanes (scheduler.limits.lanes). One that is "
                    "not used for an hour makes room for another"
                )
                raise UnknownModel(f"model {model[:MOST_CHARS]!r}: {problem}")
            if team is not None:
                self._opening[lane] = team
        if endpoint and lane not in self._configured:
            self._undescribed.add(lane)
        return lane

    def _limits(self, lane: str) -> LaneLimits | None:
        return self._limits_of(self._table(lane))

    def _table(self, lane: str) -> str:
        """The lane's table in the configuration: its own, else that of a connection that shares the lane."""
        names = self._sharing.names(lane)
        return next((name for name in names if name in self._configured), lane)

    def _log_overruled(self, table: str) -> None:
        lane = self._sharing.canonical_lane(table)
        counts = self._table(lane)
        if counts != table:
            log.warning(Event.LIMITS_OVERRULED, lane=table, by=counts)

    def _inherit(self, lane: str) -> str | None:
        """Let a new lane start with what its predecessor has learned; returns the predecessor, if any."""
        sources, since_ms = self._sharing.predecessors(lane)
        return next((source for source in sources if self._lanes.inherit(lane, source, since_ms)), None)

    def _hint(self, connection: str) -> str:
        close = difflib.get_close_matches(connection, self._connections, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {sorted(self._connections)}"
        return f"there is no connection {connection[:MOST_CHARS]!r}; {hint}"


def _check_name(name: str, model: str) -> None:
    """Raise `UnknownModel` for a name that no table, log line or key should hold."""
    if len(name) > MOST_CHARS or not name.isprintable():
        problem = f"a name has at most {MOST_CHARS} characters, all printable"
        raise UnknownModel(f"model {model[:MOST_CHARS]!r}: {problem}")


class LaneSharing:
    """Decides which connections share a rate limit, from their scope and their credential fingerprints.

    It chooses the owner of each connection's lanes: the connection whose name the lanes have. Redis keeps
    the choice. It changes if the configuration or the workers' credentials change.
    """

    def __init__(self, scopes: Scopes, connections: Mapping[str, Connection]) -> None:
        self._scopes = scopes
        self._connections = connections
        self._saved: dict[str, Scope] = {}
        self._chosen = self._choose((), 0)

    def reload(self) -> None:
        """Read the saved choice; changes of the configuration alone apply at once."""
        self._saved = self._scopes.read()
        self._chosen = self._choose((), 0)

    def look(self, workers: Sequence[Beat], lanes: Callable[[], Sequence[str]], moment: Moment) -> bool:
        """Choose anew from the credentials of live workers; true if connections start or stop to share lanes.

        A changed credential unparks the parked ones of its connection's ``lanes``. Raises `NotLeader`.
        """
        before, chosen = self._saved, self._choose(workers, moment.server_ms)
        changes = {name: chosen.get(name) for name in before | chosen if before.get(name) != chosen.get(name)}
        if changes:
            rotated = {name: each for name, each in chosen.items() if _is_rotated(before.get(name), each)}
            concerned = [lane for lane in lanes() if self._is_of(lane, rotated)] if rotated else []
            fingerprints = {name: each.credential for name, each in rotated.items()}
            opened = self._scopes.save(changes, fingerprints, concerned, moment.epoch, moment.argument)
            if opened is None:
                raise NotLeader
            _log_changes(before, chosen, opened)
        moved = _owners(self._chosen) != _owners(chosen)
        self._saved = self._chosen = chosen
        return moved

    def owner(self, connection: str) -> str:
        """The connection whose name this connection's lanes have."""
        found = self._chosen.get(connection)
        return found.lanes if found else connection

    def publish(self) -> None:
        """Write protocol, scope and lanes of every connection, for clients and the command line.

        ``lanes``: the first part of its lanes' names; if all its models share one lane, that lane. ``models``
        are those that it lists, if it does; ``key``: it needs one.
        """
        self._scopes.publish({name: self._published(name) for name in self._connections})

    def _published(self, name: str) -> dict[str, Any]:
        known = self._connections[name]
        fields: dict[str, Any] = {
            "protocol": known.protocol,
            "scope": known.scope,
            "lanes": endpoint_id(known.base_url) if known.scope == "endpoint" else self.owner(name),
        }
        if known.models:
            fields["models"] = list(known.models)
        if known.key_variable:
            fields["key"] = True
        return fields

    def canonical_lane(self, lane: str) -> str:
        """The lane that carries the calls of a lane of this name."""
        connection = lane.partition(":")[0]
        return lane_under(lane, self.owner(connection)) if connection in self._named() else lane

    def names(self, lane: str) -> list[str]:
        """The lane's name under each connection that shares it: its own name first."""
        own = lane.partition(":")[0]
        others = [name for name in self._named() if name != own and self.owner(name) == own]
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

    def _is_of(self, lane: str, scopes: Mapping[str, Scope]) -> bool:
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
        fingerprints = credentials_by_variable(connections, reported)
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

        shared = share_lanes(identities, _owners(before), may_join)
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


def _is_rotated(before: Scope | None, now: Scope) -> bool:
    """Whether the credential in force has changed, or the last worker with an older one is gone."""
    old = before or Scope(now.lanes)
    return old.credential != now.credential or (len(old.held) > 1 and len(now.held) == 1)


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

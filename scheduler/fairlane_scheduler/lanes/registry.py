"""Maps models to lanes, creates lanes in Redis before their first job, and forgets those that nobody uses."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from fairlane.config.connections.lane_identity import server_digests
from fairlane.config.settings import Settings
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
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.lanes.sharing import LaneSharing
from fairlane_scheduler.state.backlog import Backlog
from fairlane_scheduler.state.server_time import Moment

# Every worker polls a queue for each lane, and a row's template may name any model.
MOST_LANES = 1000
MOST_CHARS = 200
SEPARATOR = "|"  # between a lane and a run in marks (`Marks`)

EVERY_MS = 60_000
UNUSED_MS = 7 * 86_400_000
"""An unused lane is forgotten after this. A lane of a nightly run keeps what it has learned."""

CROWDED_UNUSED_MS = 3_600_000
"""The same if the deployment, or the team that opened the lane, has over half of its most lanes."""

FORGOTTEN_AT_ONCE = 100

log = get_logger("lanes")


class ConnectionAwaited(Exception):
    """This scheduler's settings lack an item's connection, which other processes have or had."""

    def __init__(self, connection: str) -> None:
        super().__init__(connection)
        self.connection = connection


class LaneRegistry:
    """Lanes of this deployment, from its connections."""

    def __init__(self, lanes: Lanes, sharing: LaneSharing, settings: Settings) -> None:
        self.most_of_team = settings.scheduler.limits.lanes
        """How many lanes that the configuration does not describe a team may open."""
        self._lanes = lanes
        self._sharing = sharing
        self._connections = settings.connections
        self._configured = settings.lanes
        self._limits_of = settings.limits_of
        self.servers = server_digests(settings.connections)
        """By connection, the server that it calls."""
        self._known: set[str] = set()
        self._undescribed: set[str] = set()  # lanes of endpoints that have no table in the configuration
        self._reported: frozenset[str] = frozenset()
        self.openers: dict[str, str] = {}
        """By lane that the configuration does not describe, the team that opened it."""
        self._opening: dict[str, str] = {}  # by lane that is named and not yet created: the team

    def reload(self) -> None:
        """Write the limits to Redis that the configuration or a provider's preset has changed.

        A limit that was set at run time stays until the configuration changes. One that the configuration no
        longer states is removed, also where it no longer mentions the lane.
        """
        self._known.clear()
        self.openers = self._lanes.openers()
        self._opening.clear()
        for table in self._configured:
            self._log_overruled(table)
            self.ensure(self._sharing.canonical_lane(table))
        stated = self._lanes.stated()
        for lane in self._lanes.names():
            self._inherit(lane)
            if lane.partition(":")[0] in self._connections:
                if lane in stated or self._limits(lane) is not None:
                    self.ensure(lane)
            elif lane in stated and lane not in self._known and self._has_lost_its_table(lane, stated[lane]):
                self._lanes.configure(lane, self._of_undescribed(lane))
            self._known.add(lane)

    def ensure(self, lane: str) -> bool:
        """Create a lane if it is new. Returns whether it was."""
        if lane in self._known:
            return False
        limits = self._limits(lane)
        if lane in self._undescribed:
            if lane in self._lanes.names() and not self._has_former_default(lane):  # keep limits set since
                self._known.add(lane)
                return True
            limits = self._of_undescribed(lane)
        source = self._inherit(lane)
        if self._lanes.configure(lane, limits):
            log.info(Event.LANE_CREATED, lane=lane, **({"learned_from": source} if source else {}))
        self._known.add(lane)
        if (team := self._opening.pop(lane, None)) is not None:
            self.openers[lane] = team
            self._lanes.note_opener(lane, team)
        return True

    @property
    def opening(self) -> int:
        """How many lanes are named, and not yet created."""
        return len(self._opening)

    def opened_by(self, team: str) -> int:
        """How many lanes a team has opened that the configuration does not describe."""
        return sum(each == team for opened in (self.openers, self._opening) for each in opened.values())

    def is_described(self, lane: str) -> bool:
        """Whether the configuration has a table of the lane."""
        return self._table(lane) in self._configured

    def forget(self, lane: str) -> None:
        """Drop the state of a lane that was forgotten."""
        self._known.discard(lane)
        self._undescribed.discard(lane)
        self.openers.pop(lane, None)

    def restore(self, used: Iterable[str]) -> None:
        """Add lanes again that Redis has lost from its set of lanes: without it no worker serves them.

        ``used``: lanes with queued jobs, unknown to a scheduler that began to lead after the loss.
        """
        lost = {*self._known, *used}.difference(self._lanes.names())
        for lane in sorted(lost):
            self._known.discard(lane)
            self.ensure(lane)
        if lost:
            log.warning(Event.INDEX_RESTORED, index="lanes", entries=len(lost))

    def forget_opening(self) -> None:
        """Drop lanes that were named, but whose items were never fed."""
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
                raise _unknown(model, f"a function's name and lane have no {SEPARATOR!r}")
            lane = f"{FUNCTIONS}:{configured or name}"
            return self._opened(lane, model, team, endpoint=configured is not None)
        known = self._connections.get(connection)
        if known is None:
            raise _unknown(model, self._hint(connection))
        _check_name(name, model)
        lane = lane_key(self._sharing.owners[connection], name, known.scope, known.base_url)
        return self._opened(lane, model, team, endpoint=known.scope == "endpoint")

    def lane_of_item(
        self, model: str, configured: str | None = None, team: str | None = None, *, checked: bool = False
    ) -> str:
        """The lane of an item of an admitted run: that of `lane_of`, or one that its connection has in Redis.

        ``checked``: the scheduler that admitted the run knew its models. Raises `ConnectionAwaited` if only
        another process has the connection: that scheduler, a live worker, or the creator of its lanes.
        Raises `UnknownModel` if nobody has it.
        """
        connection, _, name = model.partition(":")
        if connection == FUNCTIONS or connection in self._connections or not name:
            return self.lane_of(model, configured, team)
        for lane in (model, connection):
            if lane in self._known:
                return lane
        if checked or connection in self._reported or self._has_lanes(connection):
            raise ConnectionAwaited(connection)
        return self.lane_of(model, configured, team)

    def note_reported(self, connections: Iterable[str]) -> None:
        """Set the connections that live workers report."""
        self._reported = frozenset(connections)

    def _has_lanes(self, connection: str) -> bool:
        return any(lane.startswith(f"{connection}:") for lane in self._known)

    def _opened(self, lane: str, model: str, team: str | None, *, endpoint: bool = False) -> str:
        if lane not in self._known and lane not in self._opening:
            if len(self._known) + len(self._opening) >= MOST_LANES:
                raise _unknown(model, f"there are {MOST_LANES} lanes already, no more are opened")
            if team is not None and self.opened_by(team) >= self.most_of_team:
                opened = f"team {team} has opened {self.most_of_team} lanes (scheduler.limits.lanes)"
                raise _unknown(model, f"{opened}. One that is not used for an hour makes room for another")
            if team is not None:
                self._opening[lane] = team
        if endpoint and lane not in self._configured:
            self._undescribed.add(lane)
        return lane

    def _of_undescribed(self, lane: str) -> LaneLimits:
        """Limits of an endpoint's lane that has no table in the configuration."""
        limits = self._limits(lane)
        known = limits.model_dump(exclude_unset=True) if limits else {}
        if known.get("max_concurrency") is None:
            known = {"first_concurrency": ENDPOINT_CONCURRENCY, **known}
        return LaneLimits.model_validate(known)

    def _has_lost_its_table(self, lane: str, stated: Mapping[str, object]) -> bool:
        """Whether an endpoint's lane has limits of a table that the configuration lacks now.

        Defaults of this or an earlier version are no such limits.
        """
        servers = {
            endpoint_id(each.base_url) for each in self._connections.values() if each.scope == "endpoint"
        }
        own = self._of_undescribed(lane).model_dump(exclude_unset=True)
        former = {name: limit for name, limit in own.items() if name != "first_concurrency"}
        return lane in servers and stated not in (own, former | {"max_concurrency": ENDPOINT_CONCURRENCY})

    def _has_former_default(self, lane: str) -> bool:
        """Whether the lane still has the default concurrency limit of an earlier version."""
        return self._lanes.has_stated(lane, "max_concurrency", str(ENDPOINT_CONCURRENCY))

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
        """Let a new lane start with its predecessor's learned limits. Returns the predecessor, if any."""
        sources, since_ms = self._sharing.predecessors(lane)
        return next((source for source in sources if self._lanes.inherit(lane, source, since_ms)), None)

    def _hint(self, connection: str) -> str:
        close = difflib.get_close_matches(connection, self._connections, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {sorted(self._connections)}"
        return f"there is no connection {connection[:MOST_CHARS]!r}; {hint}"


class UnusedLanes:
    """Forgets lanes that nobody uses: any row may open one, and each costs every worker a queue.

    It looks once a minute. Lanes that the configuration describes, or an operator paused or limited, stay.
    """

    def __init__(
        self, lanes: Lanes, registry: LaneRegistry, backlog: Backlog, on_forgotten: Callable[[str], None]
    ) -> None:
        """``on_forgotten`` is called with each lane that is forgotten."""
        self._lanes, self._registry, self._backlog = lanes, registry, backlog
        self._on_forgotten = on_forgotten
        self._due_ms = 0
        self._first_seen_ms: dict[str, int] = {}

    def forget_all(self) -> None:
        """Start over: another scheduler may have led."""
        self._first_seen_ms.clear()
        self._due_ms = 0

    def tick(self, moment: Moment, *, all_loaded: bool) -> None:
        """Forget lanes that were not used for long. ``all_loaded``: the backlog has every active run.

        Raises `NotLeader`.
        """
        if moment.monotonic_ms < self._due_ms or not all_loaded:
            return
        self._due_ms = moment.monotonic_ms + EVERY_MS
        self._registry.forget_opening()
        names, used = self._registry.names(), self._used()
        candidates = [lane for lane in names if lane not in used and not self._registry.is_described(lane)]
        self._first_seen_ms = {lane: self._first_seen_ms.get(lane, moment.server_ms) for lane in candidates}
        count, crowded, openers = 0, self._crowded(len(names)), self._registry.openers
        for lane, asked_ms in self._lanes.asked_ms(candidates).items():
            unused_ms = CROWDED_UNUSED_MS if openers.get(lane) in crowded else UNUSED_MS
            if moment.server_ms - (asked_ms or self._first_seen_ms[lane]) < unused_ms:
                continue
            count += self._forget(lane, unused_ms, moment)
            if count == FORGOTTEN_AT_ONCE:
                self._due_ms = 0
                return

    def _crowded(self, lanes: int) -> set[str | None]:
        """Teams that have opened over half of the lanes that they may; all teams if there are many lanes."""
        opened = Counter(self._registry.openers.values())
        if lanes > MOST_LANES // 2:
            return {*opened, None}
        return {team for team, count in opened.items() if count > self._registry.most_of_team // 2}

    def _forget(self, lane: str, unused_ms: int, moment: Moment) -> bool:
        gone = self._lanes.forget(lane, moment.epoch, unused_ms, moment.argument)
        if gone is None:
            raise NotLeader
        if gone:
            self._registry.forget(lane)
            self._backlog.forget_lane(lane)
            self._on_forgotten(lane)
            log.info(Event.LANE_FORGOTTEN, lane=lane, unused_s=unused_ms // 1000)
        return gone

    def _used(self) -> set[str]:
        """Lanes of active runs."""
        used: set[str] = set()
        for run in self._backlog.runs():
            used.update(run.task_lanes, run.plan.eval_lanes, run.plan.session_lanes)
        return used


def _check_name(name: str, model: str) -> None:
    """Raise `UnknownModel` for a name that is too long or not printable, as in a log line or key."""
    if len(name) > MOST_CHARS or not name.isprintable():
        raise _unknown(model, f"a name has at most {MOST_CHARS} characters, all printable")


def _unknown(model: str, problem: str) -> UnknownModel:
    return UnknownModel(f"model {model[:MOST_CHARS]!r}: {problem}")

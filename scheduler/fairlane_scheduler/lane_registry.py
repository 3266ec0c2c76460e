"""Which lane a model's calls go on; makes lanes known to Redis and so to the workers before they are used."""

from __future__ import annotations

import difflib

from fairlane.admission.lanes import Lanes
from fairlane.errors import FairlaneError
from fairlane.events import Event
from fairlane.lane import ENDPOINT_CONCURRENCY, FUNCTIONS, LaneLimits, lane_key, split_model
from fairlane.logs import get_logger
from fairlane.settings import Settings
from fairlane_scheduler.lane_sharing import LaneSharing

MOST_LANES = 1000  # each is a queue that every worker polls, and a row's template may name any model
MOST_CHARS = 200

log = get_logger("lanes")


class UnknownModel(FairlaneError, ValueError):
    """A model reference that names no configured connection, or no lane that may be opened."""


class LaneRegistry:
    """Lanes of this deployment, from its connections."""

    def __init__(self, lanes: Lanes, settings: Settings, sharing: LaneSharing) -> None:
        self._lanes, self._settings, self._sharing = lanes, settings, sharing
        self._known: set[str] = set()
        self._undescribed: set[str] = set()  # lanes of endpoints without a word in the configuration

    def reload(self) -> None:
        """Put what the configuration and the providers' presets say of lanes into Redis, where it is new.

        So numbers that were set while running stay until the configuration itself is changed.
        """
        self._known.clear()
        for table in self._settings.lanes:
            self._tell_overruled(table)
            self.ensure(self._sharing.carrier(table))
        for lane in self._lanes.names():
            self._inherit(lane)
            if lane.partition(":")[0] in self._settings.connections and self._limits(lane) is not None:
                self.ensure(lane)
            self._known.add(lane)

    def ensure(self, lane: str) -> None:
        """Make a lane known, once."""
        if lane in self._known:
            return
        limits = self._limits(lane)
        if lane in self._undescribed:
            if lane in self._lanes.names():  # an operator has limited it while running: that stays
                self._known.add(lane)
                return
            known = limits.model_dump(exclude_unset=True) if limits else {}
            limits = LaneLimits.model_validate({"max_concurrency": ENDPOINT_CONCURRENCY, **known})
        source = self._inherit(lane)
        if self._lanes.configure(lane, limits):
            log.info(Event.LANE_CREATED, lane=lane, **({"learned_from": source} if source else {}))
        self._known.add(lane)

    def names(self) -> list[str]:
        return self._lanes.names()

    def lane_of(self, model: str, stated: str | None = None) -> str:
        """``"<connection>:<model>"`` → lane; a function's may be ``stated``. Raises `UnknownModel`."""
        try:
            connection, name = split_model(model)
        except ValueError as error:
            raise UnknownModel(str(error)[:MOST_CHARS]) from None
        if connection == FUNCTIONS:
            return self._opened(f"{FUNCTIONS}:{stated or name}", model, endpoint=stated is not None)
        known = self._settings.connections.get(connection)
        if known is None:
            raise UnknownModel(f"model {model[:MOST_CHARS]!r}: {self._hint(connection)}")
        if len(name) > MOST_CHARS or not name.isprintable():
            problem = f"a name has at most {MOST_CHARS} characters, all printable"
            raise UnknownModel(f"model {model[:MOST_CHARS]!r}: {problem}")
        lane = lane_key(self._sharing.giver(connection), name, known.scope, known.base_url)
        return self._opened(lane, model, endpoint=known.scope == "endpoint")

    def _opened(self, lane: str, model: str, *, endpoint: bool = False) -> str:
        if lane not in self._known and len(self._known) >= MOST_LANES:
            raise UnknownModel(f"model {model!r}: there are {MOST_LANES} lanes already, no more are opened")
        if endpoint and lane not in self._settings.lanes:
            self._undescribed.add(lane)
        return lane

    def _limits(self, lane: str) -> LaneLimits | None:
        return self._settings.limits_of(self._table(lane))

    def _table(self, lane: str) -> str:
        """The name of the table of a lane's limits: its own, else that of who shares it and has one."""
        names = self._sharing.names(lane)
        return next((name for name in names if name in self._settings.lanes), lane)

    def _tell_overruled(self, table: str) -> None:
        lane = self._sharing.carrier(table)
        counts = self._table(lane)
        if counts != table:
            log.warning(Event.LIMITS_OVERRULED, lane=table, by=counts)

    def _inherit(self, lane: str) -> str | None:
        """Have a lane start from what the one that its calls came from has learned; returns that one."""
        sources, since_ms = self._sharing.ancestor(lane)
        return next((source for source in sources if self._lanes.inherit(lane, source, since_ms)), None)

    def _hint(self, connection: str) -> str:
        close = difflib.get_close_matches(connection, self._settings.connections, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {sorted(self._settings.connections)}"
        return f"there is no connection {connection[:MOST_CHARS]!r}; {hint}"

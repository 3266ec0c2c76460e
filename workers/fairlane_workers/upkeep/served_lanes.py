"""Which lanes a worker serves: those that it is bound to, and whose connection or functions it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from fairlane.config.connections.connection import Connection
from fairlane.config.sections import WorkerSettings
from fairlane.model.lane import FUNCTIONS
from fairlane.store.read.reading import LaneDirectory


class ServedLanes:
    """Chooses among the deployment's lanes.

    Lanes of functions need ``worker.modules``. Other lanes need a connection whose calls go on them: one that
    the lane is named after, one that shares its limit, or one to its endpoint.
    """

    def __init__(self, settings: WorkerSettings, connections: Mapping[str, Connection]) -> None:
        self._settings, self._connections = settings, connections
        self._catalog: bytes | None = None
        self._named = self._read_names()

    def of(self, lanes: Iterable[str], catalog: bytes | None) -> list[str]:
        """Those of ``lanes`` that this worker serves, sorted; ``catalog`` as a scheduler published it."""
        if catalog != self._catalog:
            self._catalog, self._named = catalog, self._read_names(catalog)
        return sorted(lane for lane in lanes if self._is_bound(lane) and self._is_named(lane))

    def _read_names(self, catalog: bytes | None = None) -> set[str]:
        """What lanes are named after that it can serve: connections, or the whole lane of an endpoint."""
        directory = LaneDirectory.parse(catalog, self._connections)
        functions = {FUNCTIONS} if self._settings.modules else set[str]()
        return functions.union(*map(directory.lanes_of, self._connections))

    def _is_bound(self, lane: str) -> bool:
        bound = self._settings.lanes
        return not bound or any(fnmatchcase(lane, pattern) for pattern in bound)

    def _is_named(self, lane: str) -> bool:
        return lane in self._named or lane.partition(":")[0] in self._named

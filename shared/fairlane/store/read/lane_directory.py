"""The connections and lanes that the scheduler has published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.lane_identity import lane_under
from fairlane.model.lane import FUNCTIONS, endpoint_id, lane_key, split_model
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys

_NONE: Mapping[str, Connection] = {}


class LaneDirectory:
    """Connections as the scheduler has published them; the settings decide for unpublished ones.

    ``names`` has the published ones; ``None`` while no scheduler has published any.
    """

    def __init__(
        self, published: Mapping[str, Mapping[str, Any]] | None, connections: Mapping[str, Connection] = _NONE
    ) -> None:
        self.names = None if published is None else frozenset(published)
        self._published, self._connections = published or {}, connections

    @classmethod
    def read(
        cls, redis: RedisClient, keys: Keys, connections: Mapping[str, Connection] = _NONE
    ) -> LaneDirectory:
        """The directory now. A change affects items fed afterwards; a run's evaluations keep their lanes."""
        return cls.parse(redis.get(keys.catalog), connections)

    @classmethod
    def parse(cls, catalog: bytes | None, connections: Mapping[str, Connection] = _NONE) -> LaneDirectory:
        """The directory out of what a scheduler has published; ``None`` if none has."""
        return cls(_published(catalog), connections)

    def lane_of(self, model: str, stated: str | None = None) -> str | None:
        """``"<connection>:<model>"`` → lane; a function's may be ``stated``. ``None`` where it is unknown."""
        try:
            connection, name = split_model(model)
        except ValueError:
            return None
        if connection == FUNCTIONS:
            return f"{FUNCTIONS}:{stated or name}"
        entry, known = self._published.get(connection, {}), self._connections.get(connection)
        if "lanes" in entry:
            return f"{entry['lanes']}:{name}" if entry.get("scope") == "model" else str(entry["lanes"])
        return lane_key(connection, name, known.scope, known.base_url) if known else None

    def lanes_of(self, connection: str) -> set[str]:
        """What the lanes of a connection's calls are named after: itself, and the one whose lanes it shares;
        or the one lane of its endpoint.
        """
        entry, known = self._published.get(connection, {}), self._connections.get(connection)
        if known is not None and known.scope == "endpoint":
            return {endpoint_id(known.base_url)}
        return {connection, str(entry.get("lanes", connection))}

    def models_of(self, connection: str) -> tuple[str, ...]:
        """The models that the connection lists, also as patterns; none if it lists none."""
        entry, known = self._published.get(connection), self._connections.get(connection)
        if entry is None:
            return known.models if known else ()
        listed = entry.get("models", ())
        return tuple(str(each) for each in listed) if isinstance(listed, list) else ()

    def protocol_of(self, connection: str) -> str | None:
        """The protocol that the connection speaks; ``None`` where it is unknown."""
        entry, known = self._published.get(connection), self._connections.get(connection)
        if entry is None:
            return known.protocol if known else None
        return str(entry.get("protocol"))

    def needs_key(self, connection: str) -> bool:
        """Whether the connection's calls need a key that workers hold; false where that is unknown."""
        entry, known = self._published.get(connection), self._connections.get(connection)
        if entry is None:
            return known is not None and known.needed_key is not None
        return bool(entry.get("key"))

    def carrier(self, lane: str) -> str:
        """The lane on which calls of a lane of that name go: another's, where its connection shares that."""
        connection = lane.partition(":")[0]
        entry = self._published.get(connection, {})
        if "lanes" not in entry or entry.get("scope") == "endpoint":
            return lane
        return lane_under(lane, entry["lanes"])


def _published(text: bytes | None) -> dict[str, Mapping[str, Any]] | None:
    try:
        found = json.loads(text or "")["connections"]
        return {name: fields for name, fields in found.items() if isinstance(fields, dict)}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None

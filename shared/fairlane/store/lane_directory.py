"""Which lane a model's calls go on: where everybody asks but the scheduler, whose word it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fairlane.connection import Connection
from fairlane.lane import FUNCTIONS, lane_key, split_model
from fairlane.lane_identity import lane_under
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys

_NONE: Mapping[str, Connection] = {}


class LaneDirectory:
    """What the scheduler has published of the connections; of one that it has not, what the settings say."""

    def __init__(
        self, published: Mapping[str, Mapping[str, Any]], connections: Mapping[str, Connection] = _NONE
    ) -> None:
        self._published, self._connections = published, connections

    @classmethod
    def read(
        cls, redis: RedisClient, keys: Keys, connections: Mapping[str, Connection] = _NONE
    ) -> LaneDirectory:
        """As it is now. Changes hold for what is handed out from then on; a run's judges keep their lanes."""
        return cls(_published(redis.get(keys.catalog)), connections)

    def lane_of(self, model: str, stated: str | None = None) -> str | None:
        """``"<connection>:<model>"`` → lane; a function's may be ``stated``. ``None`` where nobody knows."""
        try:
            connection, name = split_model(model)
        except ValueError:
            return None
        if connection == FUNCTIONS:
            return f"{FUNCTIONS}:{stated or name}"
        told, known = self._published.get(connection, {}), self._connections.get(connection)
        if "lanes" in told:
            return f"{told['lanes']}:{name}" if told.get("scope") == "model" else str(told["lanes"])
        return lane_key(connection, name, known.scope, known.base_url) if known else None

    def carrier(self, lane: str) -> str:
        """The lane on which calls of a lane of that name go: another's, where its connection shares that."""
        connection = lane.partition(":")[0]
        told = self._published.get(connection, {})
        if "lanes" not in told or told.get("scope") == "endpoint":
            return lane
        return lane_under(lane, told["lanes"])


def _published(text: bytes | None) -> dict[str, Mapping[str, Any]]:
    try:
        found = json.loads(text)["connections"] if text else {}
        return {name: told for name, told in found.items() if isinstance(told, dict)}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}

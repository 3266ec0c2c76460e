"""Keeps a copy of lanes' learned limits, so that they need not learn these again if Redis loses them."""

import json

from fairlane.model.hints import AXES
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.run_queries import ask_each
from fairlane.store.write.attempts import bound, named_keys

_OF_AXIS = (
    "est", "var", "age_ms", "back_ms", "slow", "window", "cost", "put_off", "steady",
    "reported", "reported_ms", "foreign", "foreign_ms", "fullest",
)  # fmt: skip
_OF_LANE = (
    "window", "window_by", "window_age_ms", "window_step", "late_ms", "search_window", "search_by",
    "concurrency_reported", "day_rate",
)  # fmt: skip
_OF_DAY = ("day_used", "day_until_ms", "day_shut_ms")
_SHUT = (
    *("paused", "parked", "parked_ms", "retry_ms", "blocked_ms", "circuit", "open_ms"),
    *("held_until_ms", "held_from_ms", "held_named"),
)
LEARNED = (*(f"{axis}_{part}" for axis in AXES for part in _OF_AXIS), *_OF_LANE)
"""Fields of a lane that it has learned of its provider's limits."""
REMEMBERED = (*LEARNED, *_OF_DAY, *_SHUT)


class LaneMemory:
    """A copy of learned fields in the leader's memory: the only state that Redis may lack."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys
        self._learned: dict[str, dict[str, str]] = {}

    def refresh(self, lanes: list[str]) -> None:
        """Copy the learned fields of these lanes from Redis."""
        fields = "known_ms", *REMEMBERED
        found = ask_each(self._redis, lanes, lambda ask, lane: ask.hmget(self._keys.lane(lane), *fields))
        for lane, (known, *values) in found:
            if known is not None:
                pairs = zip(REMEMBERED, values, strict=True)
                self._learned[lane] = {name: value.decode() for name, value in pairs if value is not None}

    def forget(self, lane: str) -> None:
        """Drop the copy of a lane that was forgotten."""
        self._learned.pop(lane, None)

    def restore(self, now_ms: str | int = "") -> list[str]:
        """Restore the lanes that Redis has lost; returns them. Lanes that it has stay as they are."""
        restored: list[str] = []
        for lane, fields in self._learned.items():
            # The probe's lease is lost with Redis: the next probe starts at once.
            safe = fields | ({"circuit": "open"} if fields.get("circuit") == "half-open" else {})
            keys = named_keys(self._keys, lane=lane)
            call = bound("lane_restore", keys, now_ms=now_ms, name=lane, fields=json.dumps(safe))
            if call.run(self._redis) == 1:
                restored.append(lane)
        return restored

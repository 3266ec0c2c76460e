"""What the leader remembers of lanes, so that a Redis that lost everything need not find it out anew."""

from __future__ import annotations

import json

from fairlane.hints import AXES
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.script import script

_OF_AXIS = ("est", "var", "age_ms", "told", "told_ms", "foreign", "fullest")
_OF_LANE = ("window", "window_by", "window_age_ms", "window_step", "places_told", "day_rate")
_OF_DAY = ("day_used", "day_until_ms")
_SHUT = ("paused", "parked", "blocked_ms", "circuit", "open_ms")
LEARNED = (*(f"{axis}_{part}" for axis in AXES for part in _OF_AXIS), *_OF_LANE)
"""What a lane knows of its provider's limits."""
REMEMBERED = (*LEARNED, *_OF_DAY, *_SHUT)


class LaneMemory:
    """A copy of what was learned, in the leader's memory: all that it keeps that Redis may not have."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys
        self._learned: dict[str, dict[str, str]] = {}

    def refresh(self, lanes: list[str]) -> None:
        """Copy what Redis knows of these lanes now."""
        pipeline = self._redis.pipeline(transaction=False)
        for lane in lanes:
            pipeline.hmget(self._keys.lane(lane), "known_ms", *REMEMBERED)
        for lane, (known, *values) in zip(lanes, pipeline.execute(), strict=True):
            if known is not None:
                pairs = zip(REMEMBERED, values, strict=True)
                self._learned[lane] = {name: value.decode() for name, value in pairs if value is not None}

    def restore(self, now_ms: str | int = "") -> list[str]:
        """Bring back the lanes that Redis has lost; returns them. A lane that it knows is left as it is."""
        restored: list[str] = []
        for lane, fields in self._learned.items():
            # Nobody can tell whose probe was out: the next one goes at once.
            safe = fields | ({"circuit": "open"} if fields.get("circuit") == "half_open" else {})
            call = script("lane_restore").bind(
                {
                    "lanes": self._keys.lanes,
                    "lane": self._keys.lane(lane),
                    "limits": self._keys.limits(lane),
                },
                {"now_ms": now_ms, "name": lane, "fields": json.dumps(safe)},
            )
            if call.run(self._redis) == 1:
                restored.append(lane)
        return restored

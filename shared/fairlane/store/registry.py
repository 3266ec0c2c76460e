"""The teams that the operator has made: a hash that only operators and the scheduler may read or write."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys


class TeamRecord(BaseModel):
    """What the operator said of a team, and when it was made (server milliseconds)."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    weight: float = Field(default=1.0, gt=0, le=1000)
    added_ms: int = 0


class Registry:
    """Reads and writes the hash."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def put(self, team: str, record: TeamRecord) -> None:
        """Make a team known, or say something else of it."""
        self._redis.hset(self._keys.registry, team, record.model_dump_json())

    def get(self, team: str) -> TeamRecord | None:
        """What is said of one team."""
        text = self._redis.hget(self._keys.registry, team)
        return None if text is None else _record(text)

    def remove(self, team: str) -> bool:
        """Forget a team; false where nobody knew it. Its runs stay until they expire."""
        return bool(self._redis.hdel(self._keys.registry, team))

    def all(self) -> dict[str, TeamRecord]:
        """Every team that has been made."""
        found = self._redis.hgetall(self._keys.registry)
        return {team.decode("utf-8", "replace"): _record(text) for team, text in sorted(found.items())}

    def weights(self) -> dict[str, float]:
        """Each made team's weight."""
        return {team: record.weight for team, record in self.all().items()}


def _record(text: bytes) -> TeamRecord:
    try:
        return TeamRecord.model_validate_json(text)
    except ValidationError:  # written by another version
        return TeamRecord()

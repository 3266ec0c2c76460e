"""The teams that the operator has made: a hash that only operators and the scheduler may read or write."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlane.settings import TeamSettings
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys


class TeamRecord(BaseModel):
    """What the operator said of a team, and when it was made (server milliseconds).

    What is ``None`` is as the configuration has it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    weight: float = Field(default=1.0, gt=0, le=1000)
    lendable_percent: float | None = Field(default=None, ge=0, le=100)
    borrowing_limit_percent: float | None = Field(default=None, ge=0)
    max_percent: float | None = Field(default=None, gt=0, le=100)
    added_ms: int = 0

    def over(self, stated: TeamSettings) -> TeamSettings:
        """The configuration's claim, with whatever is said here in its place."""
        return stated.model_copy(update=self.model_dump(exclude={"added_ms"}, exclude_none=True))


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


def _record(text: bytes) -> TeamRecord:
    try:
        return TeamRecord.model_validate_json(text)
    except ValidationError:  # written by another version
        return TeamRecord()

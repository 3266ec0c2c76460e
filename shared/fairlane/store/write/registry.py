"""Teams that operators have added, in a hash that only operators and the scheduler may read or write."""

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlane.config.sections import TeamSettings
from fairlane.store.keys import Stored
from fairlane.store.write.audit import Act, Auditor


class TeamRecord(BaseModel):
    """An operator's settings of a team, and when it was added (server milliseconds).

    ``None``: the configuration decides.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    weight: float = Field(default=1.0, gt=0, le=1000)
    lendable_percent: float | None = Field(default=None, ge=0, le=100)
    borrowing_limit_percent: float | None = Field(default=None, ge=0)
    max_percent: float | None = Field(default=None, gt=0, le=100)
    added_ms: int = 0

    def over(self, stated: TeamSettings) -> TeamSettings:
        """The configured settings, replaced by those of this record that are not ``None``."""
        return stated.model_copy(update=self.model_dump(exclude={"added_ms"}, exclude_none=True))


class Registry(Stored):
    """Reads and writes the hash."""

    def put(self, team: str, record: TeamRecord) -> None:
        """Add a team, or change its settings."""
        self._redis.hset(self._keys.registry, team, record.model_dump_json())

    def put_audited(self, team: str, record: TeamRecord, act: Act, auditor: Auditor) -> None:
        """`put`, with an entry of the audit log in the same transaction."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hset(self._keys.registry, team, record.model_dump_json())
        detail = record.model_dump(exclude={"added_ms"}, exclude_none=True)
        auditor.append(pipeline, self._keys, act, team, team, **detail)
        pipeline.execute()

    def get(self, team: str) -> TeamRecord | None:
        """The settings of one team."""
        text = self._redis.hget(self._keys.registry, team)
        return None if text is None else _record(text)

    def remove(self, team: str) -> bool:
        """Remove a team; false if it was unknown. Its runs stay until they expire."""
        return bool(self._redis.hdel(self._keys.registry, team))

    def all(self) -> dict[str, TeamRecord]:
        """Every team that was added."""
        found = self._redis.hgetall(self._keys.registry)
        return {team.decode("utf-8", "replace"): _record(text) for team, text in sorted(found.items())}


def _record(text: bytes) -> TeamRecord:
    try:
        return TeamRecord.model_validate_json(text)
    except ValidationError:  # written by another version
        return TeamRecord()

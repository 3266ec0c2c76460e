"""Reads a whole deployment, for people: its server, its leader, its queues, the ids of a team's runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError, ResponseError

from fairlane.model.choices import SPEC_VERSION, UNSTATED_SPEC_VERSION
from fairlane.model.run import RunRef
from fairlane.store.connection.server_states import DISK, FULL, REPLICA, Refusal, refusing_state
from fairlane.store.keys import Stored
from fairlane.store.read.mistyped import mistyped_of_deployment, refusal_of
from fairlane.store.run_queries import RunStates, ask_each
from fairlane.store.write.runs.inbox import Inbox, asked_for

WAITING_READ = 1000
"""Most requests that are read of an inbox; while a scheduler leads, they stay there for moments."""


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The leader. ``until_ms`` is server time, after which nobody leads.

    ``specs`` is the latest version of a spec that it reads.
    """

    identity: str
    epoch: int
    until_ms: int
    specs: int = SPEC_VERSION


@dataclass(frozen=True, slots=True)
class ServerView:
    """A server as it reports itself; ``None`` and empty if unknown. Memory in bytes (limit 0: none).

    ``clients``: open connections, of ``most_clients``; 0 if unknown.
    """

    program: str
    version: str
    append_only: bool | None
    append_failed: bool
    replica: bool
    eviction: str | None
    memory_used: int
    memory_limit: int
    refused: Refusal | None = None
    """Why it refused a write without effect, if this user may try one."""
    clients: int = 0
    most_clients: int = 0

    @property
    def refusing(self) -> Refusal | None:
        """Why this server takes no writes, as far as can be known; ``None`` if it takes them."""
        if self.refused is not None:
            return self.refused
        if self.replica:
            return REPLICA
        if self.append_failed:
            return DISK
        return FULL if not self.evicts and 0 < self.memory_limit < self.memory_used else None

    @property
    def evicts(self) -> bool:
        """Whether this server deletes keys, and so parts of runs, once its memory limit is reached."""
        return self.eviction not in (None, "noeviction")


class DeploymentReader(Stored):
    """Reads keys that belong to no single run."""

    def server(self) -> ServerView | None:
        """The server as INFO reports it; ``None`` if INFO is missing or denied."""
        try:
            info: Mapping[str, Any] = self._redis.info()
        except ResponseError:
            return None
        return _server(info, self._refused()) if "redis_version" in info else None

    def frees_in_background(self) -> bool | None:
        """Whether the server frees expired keys in the background; ``None`` if unknown."""
        try:
            found = self._redis.config_get("lazyfree-lazy-expire")
        except ResponseError:
            return None
        value = next(iter(found.values()), None)
        return None if value is None else value in ("yes", b"yes")

    def _refused(self) -> Refusal | None:
        """Why the server refuses to delete a key that does not exist: INFO has only some of the reasons.

        Or which key the scheduler cannot use, as somebody has changed its type.
        """
        try:
            self._redis.unlink(f"{self._keys.prefix}nothing")
            return refusal_of(mistyped_of_deployment(self._redis, self._keys))
        except RedisError as error:
            return refusing_state(error)

    def leader(self) -> LeaderView | None:
        """The latest leader; ``None`` before the first."""
        fields = ("id", "epoch", "until_ms", "holder", "specs")
        identity, epoch, until_ms, holder, said = self._redis.hmget(self._keys.leader, *fields)
        if identity is None or until_ms is None:
            return None
        specs, _, by = (said or b"").partition(b" ")
        reads = int(specs) if specs and by == holder else UNSTATED_SPEC_VERSION
        return LeaderView(identity.decode(), int(epoch or 0), int(float(until_ms)), reads)

    def queued(self) -> dict[str, int]:
        """Queued jobs by lane: those that the scheduler has fed, not whole runs."""
        return {lane: sum(teams.values()) for lane, teams in self.queued_by_team().items()}

    def queued_by_team(self) -> dict[str, dict[str, int]]:
        """The same, by lane and team."""
        runs, queued = RunStates(self._redis, self._keys), dict[str, Counter[str]]()
        for (ref, lane), length in runs.queued(runs.active()).items():
            queued.setdefault(lane, Counter())[ref.team] += length
        return {lane: dict(teams) for lane, teams in queued.items()}

    def in_flight(self, lanes: Sequence[str]) -> dict[str, dict[str, int]]:
        """Calls in flight, by lane and team."""
        found = ask_each(self._redis, lanes, lambda ask, lane: ask.hgetall(self._keys.in_flight(lane)))
        return {
            lane: {team.decode(): int(count) for team, count in teams.items() if int(count) > 0}
            for lane, teams in found
        }

    def ended(self, refs: Sequence[RunRef]) -> dict[RunRef, dict[str, int]]:
        """Finished jobs of these runs, by lane; expired runs have none."""
        found = RunStates(self._redis, self._keys).read(refs)
        return {ref: run.counts("over:") for ref, run in zip(refs, found, strict=True)}

    def teams(self) -> list[str]:
        """Teams that have ever sent a request, and those that the operator has added."""
        return Inbox(self._redis, self._keys).teams()

    def newest_runs(self, teams: Sequence[str], most: int, *, skip: int = 0) -> list[RunRef]:
        """The latest runs of these teams together, the newest first, without the first ``skip`` of them.

        Some may have expired.
        """
        key, last = self._keys.runs, skip + most - 1
        read = ask_each(
            self._redis, teams, lambda ask, team: ask.zrevrange(key(team), 0, last, withscores=True)
        )
        found = [
            (submitted_ms, RunRef(team, run.decode())) for team, runs in read for run, submitted_ms in runs
        ]
        found.sort(key=lambda each: (each[0], each[1].run), reverse=True)
        return [ref for _, ref in found[skip : skip + most]]

    def count_runs(self, teams: Sequence[str]) -> int:
        """Runs that `newest_runs` could list."""
        found = ask_each(self._redis, teams, lambda ask, team: ask.zcard(self._keys.runs(team)))
        return sum(count for _, count in found)

    def run_ids(self, team: str) -> list[str]:
        """Every run of a team, also unadmitted ones, the oldest first; some may have expired."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.zrange(self._keys.runs(team), 0, -1)
        pipeline.lrange(self._keys.inbox(team), -WAITING_READ, -1)
        admitted, requests = pipeline.execute()
        return sorted({run.decode() for run in admitted} | set(asked_for("submit", requests)))


def _server(info: Mapping[str, Any], refused: Refusal | None) -> ServerView:
    valkey = info.get("valkey_version")
    appends = info.get("aof_enabled")
    return ServerView(
        program="Valkey" if valkey else "Redis",
        version=str(valkey or info["redis_version"]),
        append_only=None if appends is None else bool(appends),
        append_failed=info.get("aof_last_write_status", "ok") != "ok",
        replica=info.get("role") in ("slave", "replica"),
        eviction=info.get("maxmemory_policy"),
        memory_used=int(info.get("used_memory", 0)),
        memory_limit=int(info.get("maxmemory", 0)),
        refused=refused,
        clients=int(info.get("connected_clients", 0)),
        most_clients=int(info.get("maxclients", 0)),
    )

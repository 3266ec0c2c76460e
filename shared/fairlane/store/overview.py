"""Looks at a whole deployment, for people: its server, its leader, its queues, the ids of a team's runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from redis.exceptions import ResponseError

from fairlane.store.connect import RedisClient
from fairlane.store.inbox import Inbox, Request
from fairlane.store.keys import Keys, RunRef

WAITING_READ = 1000
"""Requests that are read of an inbox; they lie there for moments while a scheduler leads."""


@dataclass(frozen=True, slots=True)
class LeaderView:
    """Who leads. ``until_ms`` is server time; once it is past, nobody does."""

    identity: str
    epoch: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class ServerView:
    """What a server says of itself; ``None`` and empty where it does not. Memory in bytes, limit 0: none."""

    program: str
    version: str
    append_only: bool | None
    append_failed: bool
    replica: bool
    eviction: str | None
    memory_used: int
    memory_limit: int


class DeploymentReader:
    """Reads what is not one run's alone."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def server(self) -> ServerView | None:
        """What INFO tells; ``None`` where it is not there or not allowed."""
        try:
            info: Mapping[str, Any] = self._redis.info()
        except ResponseError:
            return None
        return _server(info) if "redis_version" in info else None

    def leader(self) -> LeaderView | None:
        """The last one to have led; ``None`` where there has never been one."""
        identity, epoch, until_ms = self._redis.hmget(self._keys.leader, "id", "epoch", "until_ms")
        if identity is None or until_ms is None:
            return None
        return LeaderView(identity.decode(), int(epoch or 0), int(float(until_ms)))

    def queued(self) -> dict[str, int]:
        """Jobs that are ready to start, by lane: what the scheduler has read ahead, not whole backlogs."""
        return {lane: sum(teams.values()) for lane, teams in self.queued_by_team().items()}

    def queued_by_team(self) -> dict[str, dict[str, int]]:
        """The same, by lane and team."""
        refs = [RunRef.parse(ref.decode()) for ref in self._redis.smembers(self._keys.active)]
        pipeline = self._redis.pipeline(transaction=False)
        for ref in refs:
            pipeline.smembers(self._keys.run_lanes(ref))
        found = zip(refs, pipeline.execute(), strict=True)
        places = [(ref, lane.decode()) for ref, lanes in found for lane in lanes]
        for ref, lane in places:
            pipeline.llen(self._keys.hot(ref, lane))
            pipeline.llen(self._keys.fresh(ref, lane))
        lengths = pipeline.execute()
        queued: dict[str, Counter[str]] = {}
        for number, (ref, lane) in enumerate(places):
            queued.setdefault(lane, Counter())[ref.team] += lengths[2 * number] + lengths[2 * number + 1]
        return {lane: dict(teams) for lane, teams in queued.items()}

    def flying(self, lanes: Sequence[str]) -> dict[str, dict[str, int]]:
        """Calls in flight, by lane and team."""
        pipeline = self._redis.pipeline(transaction=False)
        for lane in lanes:
            pipeline.hgetall(self._keys.flying(lane))
        return {
            lane: {team.decode(): int(count) for team, count in teams.items() if int(count) > 0}
            for lane, teams in zip(lanes, pipeline.execute(), strict=True)
        }

    def ended(self, refs: Sequence[RunRef]) -> dict[RunRef, dict[str, int]]:
        """Jobs of these runs that are over, by lane; runs that are gone have none."""
        pipeline = self._redis.pipeline(transaction=False)
        for ref in refs:
            pipeline.hgetall(self._keys.state(ref))
        return {
            ref: {
                field.decode().removeprefix("over:"): int(count)
                for field, count in state.items()
                if field.startswith(b"over:")
            }
            for ref, state in zip(refs, pipeline.execute(), strict=True)
        }

    def teams(self) -> list[str]:
        """Teams that have ever asked for something, and those that the operator has made."""
        return Inbox(self._redis, self._keys).teams()

    def newest_runs(self, teams: Sequence[str], most: int) -> list[RunRef]:
        """The latest runs of these teams together, the newest first; some may have expired."""
        pipeline = self._redis.pipeline(transaction=False)
        for team in teams:
            pipeline.zrevrange(self._keys.runs(team), 0, most - 1, withscores=True)
        found = [
            (submitted_ms, RunRef(team, run.decode()))
            for team, runs in zip(teams, pipeline.execute(), strict=True)
            for run, submitted_ms in runs
        ]
        found.sort(key=lambda each: (each[0], each[1].run), reverse=True)
        return [ref for _, ref in found[:most]]

    def run_ids(self, team: str) -> list[str]:
        """Every run of a team, oldest first, those that wait to be admitted too; some may have expired."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.zrange(self._keys.runs(team), 0, -1)
        pipeline.lrange(self._keys.inbox(team), -WAITING_READ, -1)
        admitted, requests = pipeline.execute()
        waiting = (_submitted(raw) for raw in requests)
        return sorted({run.decode() for run in admitted} | {run for run in waiting if run})


def _submitted(raw: bytes) -> str | None:
    try:
        request = Request.model_validate_json(raw)
    except ValidationError:
        return None
    return request.run if request.op == "submit" else None


def _server(info: Mapping[str, Any]) -> ServerView:
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
    )

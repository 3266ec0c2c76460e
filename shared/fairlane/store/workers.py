"""Workers by their heartbeats: who is alive, with how many slots, for which lanes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.script import Call, script


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself. ``lanes`` are the lanes whose queues it consumes now.

    ``modules`` are those whose functions it runs, or the names of the tasks that it runs.
    """

    name: str
    slots: int
    lanes: tuple[str, ...]
    version: str
    pid: int
    host: str
    started_ms: int
    busy: int = 0
    stopping: bool = False
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker's last beat, at the server's time."""

    worker: str
    beat_ms: int
    info: WorkerInfo


class Workers:
    """The registry of workers."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def beat(
        self,
        worker: str,
        info: WorkerInfo,
        attempts: Sequence[str],
        lease_ms: int,
        *,
        changed: bool,
        now_ms: str | int = "",
    ) -> Call:
        """Keeps the leases of ``attempts``; the reply lists those that were lost."""
        keys = self._keys
        return script("worker_beat").bind(
            {"workers": keys.workers, "leases": keys.leases, "leased": keys.leased, "dirty": keys.dirty},
            {
                "now_ms": now_ms,
                "channel": keys.wake,
                "worker": worker,
                "info": json.dumps(asdict(info), separators=(",", ":")),
                "lease_ms": lease_ms,
                "attempts": json.dumps(list(attempts)),
                "changed": int(changed),
            },
        )

    def leave(self, worker: str) -> Call:
        """Forget a worker that stops."""
        return script("worker_leave").bind(
            {"workers": self._keys.workers, "dirty": self._keys.dirty},
            {"channel": self._keys.wake, "worker": worker},
        )

    def beats(self, redis: RedisClient) -> list[Beat]:
        """Every worker that has not left or been forgotten."""
        return read_beats(redis.hgetall(self._keys.workers))


def read_beats(stored: Mapping[bytes, bytes]) -> list[Beat]:
    """The registry's hash as it is stored, by worker."""
    return [_beat(worker.decode(), record.decode()) for worker, record in sorted(stored.items())]


def _beat(worker: str, record: str) -> Beat:
    beat_ms, _, text = record.partition(" ")
    data: dict[str, Any] = json.loads(text)
    known: dict[str, Any] = {name: data[name] for name in WorkerInfo.__dataclass_fields__ if name in data}
    known["lanes"], known["modules"] = tuple(data["lanes"]), tuple(data.get("modules", ()))
    return Beat(worker, int(beat_ms), WorkerInfo(**known))

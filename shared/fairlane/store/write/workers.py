"""Workers by their heartbeats: the living ones, their slots and their lanes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from fairlane.model.choices import SPEC_VERSION, UNSTATED_SPEC_VERSION
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.script import Call
from fairlane.store.write.attempts import bound, named_keys
from fairlane.store.write.audit import UNNAMED, Act, Auditor


class WorkerRequest(StrEnum):
    """What an operator may ask of a worker."""

    IDLE = "idle"  # take no new calls, finish those in flight, and stay
    STOP = "stop"  # the same, and then end
    WORK = "work"  # take work again


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as it reports itself. ``lanes`` are the lanes whose queues it consumes now, or consumed last.

    ``modules`` are those whose functions it runs, or the names of the tasks that it runs. ``stopping``: it
    takes no new calls; ``draining``: an operator asked for that; ``drained``: no call is left. ``messages``:
    the newest version of messages that it reads. ``busy``: used slots; ``pending``: asynchronous calls that
    it polls, which hold no slot. ``credentials`` are fingerprints
    of the keys that it holds, by connection; ``renewals`` counts keys that have replaced a denied one, by
    connection, also with the same fingerprint. ``connections`` are those that it is configured with;
    none if it does not say. ``unusable`` says why it cannot use some of them; it serves none of their lanes.
    ``shortage`` says why it has fewer slots than configured. ``specs`` is the latest version of a spec
    that it reads. ``denied`` has the provider's words by lane, where calls with this worker's key are denied.
    ``starts_per_s``: calls that it can start a second; 0: it does not say.
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
    draining: bool = False
    drained: bool = False
    messages: int = 1
    pending: int = 0
    credentials: Mapping[str, str] = field(default_factory=dict)
    connections: tuple[str, ...] = ()
    shortage: str = ""
    unusable: Mapping[str, str] = field(default_factory=dict)
    specs: int = SPEC_VERSION
    renewals: Mapping[str, int] = field(default_factory=dict)
    denied: Mapping[str, str] = field(default_factory=dict)
    starts_per_s: int = 0


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker's last heartbeat; ``beat_ms`` is server time."""

    worker: str
    beat_ms: int
    info: WorkerInfo


class Workers:
    """The registry of workers."""

    def __init__(self, keys: Keys, auditor: Auditor = UNNAMED) -> None:
        self._keys, self._auditor = keys, auditor

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
        """Report a heartbeat, and extend the leases of ``attempts``; the reply lists those that were lost."""
        return bound(
            "worker_beat",
            named_keys(self._keys),
            now_ms=now_ms,
            worker=worker,
            info=json.dumps(asdict(info), separators=(",", ":")),
            lease_ms=lease_ms,
            attempts=json.dumps(list(attempts)),
            changed=int(changed),
        )

    def leave(self, worker: str) -> Call:
        """Forget a worker that stops. The reply is 1, or 0 if it was unknown."""
        return self._forget(worker, "", "")

    def forget_silent(self, redis: RedisClient, worker: str, timeout_ms: int, now_ms: str | int = "") -> bool:
        """Forget a worker without a heartbeat for ``timeout_ms``; false if it has sent one."""
        return bool(self._forget(worker, timeout_ms, now_ms).run(redis) == 1)

    def _forget(self, worker: str, timeout_ms: str | int, now_ms: str | int) -> Call:
        keys = named_keys(self._keys)
        return bound("worker_leave", keys, now_ms=now_ms, worker=worker, worker_timeout_ms=timeout_ms)

    def ask(self, redis: RedisClient, worker: str, wish: WorkerRequest) -> bool:
        """Ask a worker to drain, stop or work; false if there is no worker with that id."""
        audit = self._auditor.entry(Act.WORKER_ASKED, worker)
        asked = bound("worker_drain", named_keys(self._keys), worker=worker, request=wish, audit=audit)
        return bool(asked.run(redis) == 1)

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
    known |= {name: tuple(data.get(name, ())) for name in ("lanes", "modules", "connections")}
    known.setdefault("specs", UNSTATED_SPEC_VERSION)
    return Beat(worker, int(beat_ms), WorkerInfo(**known))

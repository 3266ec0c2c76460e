"""Reads runs: states, specs, rows, results and queues; and the time. Only it knows the fields of states."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from redis.exceptions import ResponseError

from fairlane.core.clock import TIME_FIELDS, DeploymentTime, time_at
from fairlane.core.errors import RunArchived, RunNotFound
from fairlane.model.job import TERMINAL, JobState
from fairlane.model.run import Plan, RunRef, RunState
from fairlane.model.run_status import LaneProgress, Pause, RoleTime, RunStatus
from fairlane.model.sessions import memberships_field
from fairlane.store.connection.connect import RedisClient
from fairlane.store.connection.server_states import RETYPED, refusing_state
from fairlane.store.keys import Keys, Stored, digest_field
from fairlane.store.redis_client import RedisPipeline
from fairlane.store.rejections import REJECTED, rejections_in

ORIGINS = "from:"
"""Prefix of the fields that hold the places of a page's rows in the continued run."""

MOST_DIGEST_BYTES = 64
"""Enough for a number of rows and a digest in hexadecimal."""

MOST_ORIGINS_BYTES = 1 << 18
"""Enough for one or two numbers for each of the ten thousand rows of a page, as JSON."""

ROLE_TIME_FIELDS = (
    "finished_ms",
    *(f"{part}:{role}" for role in ("task", "eval") for part in ("calls", "calling_ms", "open", "open_ms")),
)
"""Fields of a run's state that `role_times` reads."""

_ENDED = sorted(TERMINAL)
_PROGRESS = ("jobs", "jobs_done", "in_flight", "paused_ms", *(f"n:{state}" for state in _ENDED))

S = TypeVar("S")
T = TypeVar("T")


def read_time(redis: RedisClient, keys: Keys) -> DeploymentTime:
    """The time now, in one round trip."""
    pipeline = redis.pipeline(transaction=False)
    pipeline.time()
    pipeline.hmget(keys.clock, *TIME_FIELDS)
    (seconds, micros), noted = pipeline.execute()
    return time_at(int(seconds) * 1000 + int(micros) // 1000, noted)


def answers(pipeline: Any) -> list[Any]:
    """The replies to a pipeline. Raises the first error as the server sent it, for `read_hostile`."""
    found: list[Any] = pipeline.execute(raise_on_error=False)
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found


def ask_each(
    redis: RedisClient, subjects: Sequence[S], ask: Callable[[RedisPipeline, S], object]
) -> Iterator[tuple[S, Any]]:
    """Each of ``subjects`` with the reply to the command that ``ask`` queues for it, in one round trip."""
    pipeline = redis.pipeline(transaction=False)
    for each in subjects:
        ask(pipeline, each)
    return zip(subjects, pipeline.execute(), strict=True)


def read_hostile(read: Callable[[], T]) -> T | None:
    """The result of ``read``, of a key that a team may write; ``None`` if the team gave it a wrong type."""
    try:
        return read()
    except ResponseError as error:
        if refusing_state(error) is RETYPED:
            return None
        raise


def require_here(ref: RunRef, state: bytes | None, archived: bytes | None) -> RunState:
    """A run's state, by these fields of it. Raises `RunNotFound`, and `RunArchived` where a stub is left."""
    if state is None:
        raise RunNotFound(ref.run)
    if archived is not None:
        raise RunArchived(ref.run)
    return RunState(state.decode())


def ended_early(state: RunState, reason: bytes | None) -> str | None:
    """Why jobs of a run have no result: how it ended; ``None`` for a run that completed or goes on."""
    if not state.finished or state is RunState.COMPLETED:
        return None
    how = f"the run was {str(state).replace('_', ' ')}"
    return f"{how}: {reason.decode(errors='replace')}" if reason else how


def role_times(values: Sequence[bytes | None]) -> dict[str, float]:
    """Values of `ROLE_TIME_FIELDS` in seconds, named as in a log line: predict_waiting_s, …."""
    fields, found = RunFields(_named(ROLE_TIME_FIELDS, values)), dict[str, float]()
    for name, role in (("predict", "task"), ("score", "eval")):
        if (time := fields.role_time(role)) is not None:
            found |= {f"{name}_waiting_s": time.waiting_s, f"{name}_calling_s": time.calling_s}
    return found


class RunFields:
    """Fields of one run's state hash, all or some. Without any, the run is not admitted or has expired."""

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self.texts = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}

    def __bool__(self) -> bool:
        return bool(self.texts)

    @property
    def state(self) -> RunState | None:
        """The run's state; ``None`` if the field was not read or is not there."""
        return RunState(self.texts["state"]) if "state" in self.texts else None

    @property
    def archived(self) -> bool:
        """Whether only a stub of the run is left here."""
        return "archived" in self.texts

    @property
    def open(self) -> bool:
        """Whether the run may get more rows."""
        return self.texts.get("open") == "1"

    @property
    def paused(self) -> bool:
        """Whether the run was paused, even if it has ended since."""
        return "paused_ms" in self.texts

    @property
    def pause(self) -> Pause | None:
        """Since when a run that has not ended is paused, and by whom."""
        if not self.paused or self.state is None or self.state.finished:
            return None
        return Pause(self.count("paused_ms"), self.texts.get("paused_by", ""))

    @property
    def pauses(self) -> tuple[tuple[int, int], ...]:
        """Its latest pauses that have ended: start and end of each, in server milliseconds."""
        pairs = (each.split("-") for each in self.texts.get("pauses", "").split(",") if each)
        return tuple((int(since), int(until)) for since, until in pairs)

    def count(self, name: str) -> int:
        """A counter; 0 if it is not there."""
        return int(self.texts.get(name, 0))

    def counts(self, prefix: str) -> dict[str, int]:
        """Counters whose names begin with ``prefix``, by the rest of the name."""
        return {
            name.removeprefix(prefix): int(value)
            for name, value in self.texts.items()
            if name.startswith(prefix)
        }

    def status(self, ref: RunRef, name: str) -> RunStatus:
        """The status of an admitted run; needs all fields."""
        known, ended = self.counts("known:"), self.counts("over:")
        rejected = any(name.startswith(REJECTED) for name in self.texts)
        return RunStatus(
            run=ref.run,
            team=ref.team,
            name=name,
            state=RunState(self.texts["state"]),
            items=self.count("items"),
            items_done=self.count("items_done"),
            jobs=self.count("jobs"),
            jobs_done=self.count("jobs_done"),
            by_state={JobState(state): count for state, count in self.counts("n:").items()},
            in_flight=self.count("in_flight"),
            retries=self.count("retries"),
            rate_limits=self.count("rate_limits"),
            late_reports=self.count("late"),
            lanes=tuple(LaneProgress(lane, known[lane], ended.get(lane, 0)) for lane in sorted(known)),
            submitted_ms=self.count("submitted_ms"),
            started_ms=self.count("started_ms") or None,
            finished_ms=self.count("finished_ms") or None,
            reason=self.texts.get("reason"),
            paused=self.pause,
            predict=self.role_time("task"),
            score=self.role_time("eval"),
            rejections=rejections_in(self.texts) if rejected else (),
        )

    def role_time(self, role: str) -> RoleTime | None:
        """How long jobs of a role (``task``, ``eval``) of a finished run waited and were called.

        ``lib/run/role_times.lua`` counts it. Jobs that the end of the run cut off waited until then.
        """
        calls, finished_ms = self.count(f"calls:{role}"), self.count("finished_ms")
        if not calls or not finished_ms:
            return None
        calling_ms = self.count(f"calling_ms:{role}")
        waiting_ms = self.count(f"open_ms:{role}") + self.count(f"open:{role}") * finished_ms - calling_ms
        return RoleTime(calls, max(0, waiting_ms) / 1000, calling_ms / 1000)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of an active run. ``ended``: finished jobs, by state."""

    jobs: int
    jobs_done: int
    in_flight: int
    paused: bool
    ended: Mapping[JobState, int]

    @property
    def waiting(self) -> int:
        """Jobs that are neither finished nor leased, fed or not."""
        return max(0, self.jobs - self.jobs_done - self.in_flight)


class RunStates(Stored):
    """Reads the states of many runs, in one or two round trips."""

    def active(self) -> list[RunRef]:
        """Runs that have not ended."""
        return [RunRef.parse(ref.decode()) for ref in self._redis.smembers(self._keys.active)]

    def read(self, refs: Sequence[RunRef], *fields: str) -> list[RunFields]:
        """These fields of each run's state, in the order of ``refs``; all fields where none is named."""
        pipeline = self._redis.pipeline(transaction=False)
        for ref in refs:
            if fields:
                pipeline.hmget(self._keys.state(ref), *fields)
            else:
                pipeline.hgetall(self._keys.state(ref))
        replies = pipeline.execute()
        return [RunFields(_named(fields, reply) if fields else reply) for reply in replies]

    def of(self, refs: Sequence[RunRef]) -> dict[RunRef, RunProgress]:
        """The progress of these runs; expired runs are left out."""
        found: dict[RunRef, RunProgress] = {}
        for ref, run in zip(refs, self.read(refs, *_PROGRESS), strict=True):
            if "jobs" in run.texts:
                ended = {state: run.count(f"n:{state}") for state in _ENDED}
                found[ref] = RunProgress(
                    run.count("jobs"), run.count("jobs_done"), run.count("in_flight"), run.paused, ended
                )
        return found

    def queued(self, refs: Sequence[RunRef]) -> dict[tuple[RunRef, str], int]:
        """Jobs that these runs have queued, by run and lane, on every lane where they have had jobs."""
        found = ask_each(self._redis, refs, lambda ask, ref: ask.smembers(self._keys.run_lanes(ref)))
        queues = [(ref, lane.decode()) for ref, lanes in found for lane in lanes]
        return queue_lengths(self._redis, self._keys, queues)

    def names(self, refs: Sequence[RunRef]) -> list[str]:
        """The names of these runs; the id of a run without a plan."""
        texts = ask_each(self._redis, refs, lambda ask, ref: ask.get(self._keys.plan(ref)))
        plans = [(ref, json.loads(text) if text else {}) for ref, text in texts]
        return [str(plan.get("spec", {}).get("name", ref.run)) for ref, plan in plans]

    def states(self, refs: Sequence[RunRef]) -> list[RunState | None]:
        """The states of these runs; ``None`` for expired ones."""
        return [run.state for run in self.read(refs, "state")]


def queue_lengths(
    redis: RedisClient, keys: Keys, queues: Sequence[tuple[RunRef, str]]
) -> dict[tuple[RunRef, str], int]:
    """Jobs that each of these runs has queued on a lane: ready evaluations, due retries and fresh items."""
    pipeline = redis.pipeline(transaction=False)
    for ref, lane in queues:
        pipeline.llen(keys.hot(ref, lane))
        pipeline.llen(keys.fresh(ref, lane))
    lengths = pipeline.execute()
    return {queue: lengths[2 * i] + lengths[2 * i + 1] for i, queue in enumerate(queues)}


def _named(fields: Sequence[str], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    pairs = zip(fields, values, strict=True)
    return {name.encode(): value for name, value in pairs if value is not None}


class Extent(NamedTuple):
    """Items fed and rows so far, whether more rows will come, when the run was admitted, whether it is
    paused, and its earlier pauses (`RunFields.pauses`).
    """

    cursor: int
    rows: int
    open: bool
    started_ms: int
    paused: bool = False
    pauses: tuple[tuple[int, int], ...] = ()


class RunQueries:
    """Reads runs; values written by clients are hostile until they are parsed."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self.redis, self.keys = redis, keys
        self._states = RunStates(redis, keys)

    def active(self) -> list[RunRef]:
        """Runs that are not finished."""
        return self._states.active()

    def is_active(self, ref: RunRef) -> bool:
        """Whether a run was admitted and is not finished."""
        return bool(self.redis.sismember(self.keys.active, str(ref)))

    def spec_text(self, ref: RunRef, most: int = -1) -> bytes | None:
        """A submitted spec as its client wrote it; at most one byte more than ``most`` of it."""

        def read() -> bytes | None:
            pipeline = self.redis.pipeline(transaction=True)
            pipeline.exists(self.keys.spec(ref))
            pipeline.getrange(self.keys.spec(ref), 0, most)
            there, text = answers(pipeline)
            return text if there else None

        return read_hostile(read)

    def page_bytes(self, ref: RunRef, numbers: Sequence[int]) -> list[int]:
        """Compressed bytes of each of these pages of rows; 0 if there is none."""

        def read() -> list[int]:
            pipeline = self.redis.pipeline(transaction=False)
            for number in numbers:
                pipeline.hstrlen(self.keys.rows(ref), str(number))
            return [int(size) for size in answers(pipeline)]

        return read_hostile(read) or [0] * len(numbers)

    def plan(self, ref: RunRef) -> Plan | None:
        """An admitted run's plan."""
        text = self.redis.get(self.keys.plan(ref))
        return Plan.read(text) if text else None

    def cursor(self, ref: RunRef) -> int:
        """Items fed so far."""
        (run,) = self._states.read([ref], "cursor")
        return run.count("cursor")

    def extent(self, ref: RunRef) -> Extent:
        """How far a run has come."""
        fields = ("cursor", "rows", "open", "started_ms", "paused_ms", "pauses")
        (run,) = self._states.read([ref], *fields)
        started_ms = run.count("started_ms")
        return Extent(run.count("cursor"), run.count("rows"), run.open, started_ms, run.paused, run.pauses)

    def page(self, ref: RunRef, number: int) -> bytes | None:
        """One compressed page of rows."""
        return read_hostile(lambda: self.redis.hget(self.keys.rows(ref), str(number)))

    def origins(self, ref: RunRef, number: int) -> bytes | None:
        """The numbers of a page's rows in the continued run, a JSON list; ``None`` if it is too long."""
        return self._bounded(ref, f"{ORIGINS}{number}", MOST_ORIGINS_BYTES)

    def digest(self, ref: RunRef, number: int) -> str | None:
        """The digest of a page that was read by reference; ``None`` if an earlier version read it."""
        stored = self._bounded(ref, digest_field(number), MOST_DIGEST_BYTES)
        return None if stored is None else stored.decode(errors="replace")

    def memberships(self, ref: RunRef, number: int) -> bytes | None:
        """The stored memberships of one page's rows, for `fairlane.model.sessions.decode_memberships`."""
        return self._bounded(ref, memberships_field(number), MOST_ORIGINS_BYTES)

    def _bounded(self, ref: RunRef, field: str, most_bytes: int) -> bytes | None:
        """A field that a client wrote next to a run's pages; ``None`` if longer than ``most_bytes``."""

        def read() -> bytes | None:
            if self.redis.hstrlen(self.keys.rows(ref), field) > most_bytes:
                return None
            blob: bytes | None = self.redis.hget(self.keys.rows(ref), field)
            return blob

        return read_hostile(read)

    def results(self, ref: RunRef, jobs: Iterable[int]) -> list[bytes | None]:
        """Stored results, ``None`` for jobs that have none."""
        found: list[bytes | None] = self.redis.hmget(self.keys.results(ref), [str(job) for job in jobs])
        return found

    def memory(self, ref: RunRef) -> dict[bytes, bytes]:
        """Values that the run's later items read of earlier ones."""
        found: dict[bytes, bytes] = self.redis.hgetall(self.keys.memory(ref))
        return found

    def turn(self, ref: RunRef) -> tuple[int, int]:
        """Items fed, and items that have ended."""
        (run,) = self._states.read([ref], "handed", "items_done")
        return run.count("handed"), run.count("items_done")

    def lanes(self, ref: RunRef) -> set[str]:
        """Lanes on which the run has had jobs."""
        return {lane.decode() for lane in self.redis.smembers(self.keys.run_lanes(ref))}

    def queued(self, ref: RunRef, lanes: Sequence[str]) -> dict[str, int]:
        """Jobs queued on each of ``lanes``."""
        lengths = queue_lengths(self.redis, self.keys, [(ref, lane) for lane in lanes])
        return {lane: length for (_, lane), length in lengths.items()}

    def over_within(self, ref: RunRef, first: int, end: int) -> int:
        """How many of the jobs from ``first`` on, up to ``end`` without it, have a record."""
        done, start, last = self.keys.done(ref), first // 8, (end - 1) // 8
        pipeline = self.redis.pipeline(transaction=True)
        pipeline.bitcount(done, start, last)
        pipeline.getrange(done, start, start)
        pipeline.getrange(done, last, last)
        count, head, tail = pipeline.execute()
        before = int.from_bytes(head, "big") >> (8 - first % 8)
        behind = int.from_bytes(tail, "big") & ((1 << -end % 8) - 1)
        return int(count) - before.bit_count() - behind.bit_count()

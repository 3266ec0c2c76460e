"""The scheduler's verbs on runs: admit, refuse, feed, cancel, promote; and what it reads of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlane.job import JobState
from fairlane.run import Plan, RunState
from fairlane.sessions import seats_field
from fairlane.store.attempts import Over, follow_json, run_keys
from fairlane.store.connect import RedisClient
from fairlane.store.entry import Entry
from fairlane.store.keys import Keys, RunRef
from fairlane.store.script import script
from fairlane.store.sessions import Joined
from fairlane.store.untrusted import read_untrusted

ORIGINS = "from:"
"""Fields of a run's rows that tell where a page's rows were in the run before."""

# What `run_end` answers where a worker has just queued a judge on a lane that the call did not name.
LANE_NOT_NAMED = -2


@dataclass(frozen=True, slots=True)
class Delayed:
    """A job that waits out its back-off."""

    member: str
    ref: RunRef
    entry: str
    lane: str


class Extent(NamedTuple):
    """Items looked at so far, rows there are so far, whether there will be more, and when the run was
    admitted.
    """

    cursor: int
    rows: int
    open: bool
    started_ms: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends before its time: its state, and that of its jobs that are not over."""

    state: RunState
    unfinished: JobState
    reason: str = ""


CANCELLED = Ending(RunState.CANCELLED, JobState.CANCELLED)
TIMED_OUT = Ending(RunState.TIMED_OUT, JobState.TIMED_OUT, "its max_duration is over")
OUT_OF_BUDGET = Ending(RunState.STOPPED, JobState.SKIPPED, "the next call would exceed its budget")


class Runs:
    """Runs in Redis, as the leader changes them.

    Every verb is fenced by the leader's epoch, but `promote`: it moves a job once, whoever asks.
    """

    def __init__(self, redis: RedisClient, keys: Keys, ttl_ms: int) -> None:
        self._redis = self.redis = redis
        self._keys = self.keys = keys
        self._ttl_ms = ttl_ms

    def active(self) -> list[RunRef]:
        """Runs that are not finished."""
        return [RunRef.parse(ref.decode()) for ref in self._redis.smembers(self._keys.active)]

    def spec_text(self, ref: RunRef) -> bytes | None:
        """A submitted spec as its client wrote it."""
        text: bytes | None = read_untrusted(lambda: self._redis.get(self._keys.spec(ref)))
        return text

    def plan(self, ref: RunRef) -> Plan | None:
        """An admitted run's plan."""
        text = self._redis.get(self._keys.plan(ref))
        return Plan.model_validate_json(text) if text else None

    def cursor(self, ref: RunRef) -> int:
        """Items handed out so far."""
        return int(self._redis.hget(self._keys.state(ref), "cursor") or 0)

    def extent(self, ref: RunRef) -> Extent:
        """How far a run has come."""
        fields = ("cursor", "rows", "open", "started_ms")
        cursor, rows, still_open, started = self._redis.hmget(self._keys.state(ref), *fields)
        return Extent(int(cursor or 0), int(rows or 0), still_open == b"1", int(started or 0))

    def page(self, ref: RunRef, number: int) -> bytes | None:
        """One compressed page of rows."""
        blob: bytes | None = read_untrusted(lambda: self._redis.hget(self._keys.rows(ref), str(number)))
        return blob

    def origins(self, ref: RunRef, number: int) -> bytes | None:
        """Where one page's rows were in the run that this one goes on from: a JSON list of row numbers."""
        text: bytes | None = read_untrusted(
            lambda: self._redis.hget(self._keys.rows(ref), f"{ORIGINS}{number}")
        )
        return text

    def seats(self, ref: RunRef, number: int) -> bytes | None:
        """Where the rows of one page belong: `fairlane.sessions.decode_seats`."""
        blob: bytes | None = read_untrusted(
            lambda: self._redis.hget(self._keys.rows(ref), seats_field(number))
        )
        return blob

    def results(self, ref: RunRef, jobs: Iterable[int]) -> list[bytes | None]:
        """Stored results, ``None`` for jobs that have none."""
        found: list[bytes | None] = self._redis.hmget(self._keys.results(ref), [str(job) for job in jobs])
        return found

    def memory(self, ref: RunRef) -> dict[bytes, bytes]:
        """What the run's later items read of earlier ones."""
        found: dict[bytes, bytes] = self._redis.hgetall(self._keys.memory(ref))
        return found

    def turn(self, ref: RunRef) -> tuple[int, int]:
        """Items handed out, and items that are over."""
        handed, done = self._redis.hmget(self._keys.state(ref), "handed", "items_done")
        return int(handed or 0), int(done or 0)

    def lanes(self, ref: RunRef) -> set[str]:
        """Lanes on which the run has had jobs."""
        return {lane.decode() for lane in self._redis.smembers(self._keys.run_lanes(ref))}

    def queued(self, ref: RunRef, lanes: Sequence[str]) -> dict[str, int]:
        """Jobs queued on each of ``lanes``."""
        pipeline = self._redis.pipeline(transaction=False)
        for lane in lanes:
            pipeline.llen(self._keys.hot(ref, lane))
            pipeline.llen(self._keys.fresh(ref, lane))
        lengths = pipeline.execute()
        return {lane: lengths[2 * i] + lengths[2 * i + 1] for i, lane in enumerate(lanes)}

    def admit(
        self,
        plan: Plan,
        epoch: int,
        now_ms: str | int = "",
        *,
        bounds: Mapping[str, int | float | str] | None = None,
    ) -> int:
        """1: running. 2: it had no items and is completed. 0: not admitted (again), or not the leader.

        ``bounds`` are fields that ``lib/bounds.lua`` reads.
        """
        spec = plan.spec
        ref = RunRef(spec.team, spec.run)
        fields: dict[str, int | float | str] = {
            "rows": spec.rows,
            "items": spec.items,
            "jobs": spec.jobs,
            "steps": spec.steps,
            "submitted_ms": spec.submitted_ms,
            **known_jobs(plan, spec.items),
            **(bounds or {}),
        }
        if spec.session_evals:
            fields["first_session_job"] = spec.items * spec.steps
            fields["session_jobs"] = spec.session_jobs
        if spec.open:
            fields["open"] = 1
        call = script("run_admit").bind(
            self._run_keys(ref) | {"runs": self._keys.runs(ref.team)},
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "ref": str(ref),
                "plan": plan.model_dump_json(),
                "counts": json.dumps(fields),
                "ttl_ms": self._ttl_ms,
            },
        )
        return int(call.run(self._redis))

    def refuse(self, ref: RunRef, reason: str, submitted_ms: int, epoch: int, now_ms: str | int = "") -> bool:
        call = script("run_refuse").bind(
            self._run_keys(ref) | {"runs": self._keys.runs(ref.team)},
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "ref": str(ref),
                "reason": reason,
                "submitted_ms": submitted_ms,
                "ttl_ms": self._ttl_ms,
            },
        )
        return bool(call.run(self._redis) == 1)

    def feed(
        self,
        ref: RunRef,
        epoch: int,
        start: int,
        upto: int,
        entries: Mapping[str, Sequence[Entry]],
        over: Sequence[Over],
        now_ms: str | int = "",
        *,
        handed: int | None = None,
        joined: Mapping[int, Joined] | None = None,
        memory: Mapping[str, str] | None = None,
    ) -> int:
        """Queue ``entries`` (by lane), record ``over``. 1: fed, 2: the run is over, 0: stale.

        ``handed``: items that this hands out; left out, as many as it looks at. ``joined``: the sessions of
        items that may be over with it. ``memory``: what later items read of these.
        """
        lanes = list(entries)
        sessions = joined or {}
        queues = [self._keys.fresh(ref, lane) for lane in lanes]
        queues += [self._keys.hot(ref, lane) for each in list(sessions.values())[:1] for lane in each.lanes]
        call = script("run_feed").bind(
            self._run_keys(ref) | {"dirty": self._keys.dirty, "queues": queues},
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "channel": self._keys.wake,
                "ref": str(ref),
                "from": start,
                "upto": upto,
                "lanes": json.dumps(lanes),
                "entries": json.dumps([[str(entry) for entry in entries[lane]] for lane in lanes]),
                "over": follow_json(over),
                "memory": json.dumps(dict(memory or {})),
                "handed": upto - start if handed is None else handed,
                "joined": json.dumps([[item, each.told()] for item, each in sessions.items()]),
            },
        )
        return int(call.run(self._redis))

    def extend(
        self, ref: RunRef, plan: Plan, rows: int, epoch: int, now_ms: str | int = "", *, last: bool
    ) -> int:
        """An open run has ``rows`` rows by now. 1: extended, 2: it is over with that, 0: stale, or nothing
        new.

        After the ``last`` its plan says how many there are.
        """
        spec = plan.spec.model_copy(update={"rows": rows, "open": False})
        whole = Plan.model_validate(plan.model_dump() | {"spec": spec.model_dump()})
        call = script("run_extend").bind(
            self._run_keys(ref),
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "ref": str(ref),
                "rows": rows,
                "items": spec.items,
                "jobs": spec.jobs,
                "known": json.dumps(known_jobs(plan, 1)),
                "plan": whole.model_dump_json() if last else "",
            },
        )
        return int(call.run(self._redis))

    def append(self, ref: RunRef, number: int, page: bytes) -> None:
        """Write a page of rows that the scheduler has read itself."""
        self._redis.hset(self._keys.rows(ref), str(number), page)

    def drop_page(self, ref: RunRef, number: int) -> None:
        """Forget a page of rows that can be read again where it came from."""
        self._redis.hdel(self._keys.rows(ref), str(number))

    def over_within(self, ref: RunRef, first_byte: int, last_byte: int) -> int:
        """How many jobs have their record, of eight a byte."""
        return int(self._redis.bitcount(self._keys.done(ref), first_byte, last_byte))

    def end(
        self, ref: RunRef, lanes: Sequence[str], ending: Ending, epoch: int, now_ms: str | int = ""
    ) -> int:
        """End a run early; ``lanes`` are all there are. Returns jobs that were not over, -1 if it is not
        running.
        """
        known = set(lanes)
        while True:
            known |= self.lanes(ref)
            left = self._end(ref, sorted(known), ending, epoch, now_ms)
            if left != LANE_NOT_NAMED:
                return left

    def _end(self, ref: RunRef, lanes: Sequence[str], ending: Ending, epoch: int, now_ms: str | int) -> int:
        keys = self._keys
        owned = [
            name for lane in lanes for name in (keys.lane(lane), keys.hot(ref, lane), keys.fresh(ref, lane))
        ]
        call = script("run_end").bind(
            self._run_keys(ref)
            | {
                "leases": keys.leases,
                "leased": keys.leased,
                "dirty": keys.dirty,
                "starved": keys.starved,
                "lanes": owned,
            },
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "channel": keys.wake,
                "control": keys.control,
                "ref": str(ref),
                "names": json.dumps(list(lanes)),
                "state": ending.state,
                "unfinished": ending.unfinished,
                "reason": ending.reason,
            },
        )
        return int(call.run(self._redis))

    def delayed(self, upto_ms: int, limit: int = 500) -> list[Delayed]:
        """Jobs whose back-off ends by ``upto_ms``, soonest first."""
        found = []
        for raw in self._redis.zrangebyscore(self._keys.delayed, "-inf", upto_ms, start=0, num=limit):
            member = raw.decode()
            ref, entry, lane = member.split("|", 2)
            found.append(Delayed(member, RunRef.parse(ref), entry, lane))
        return found

    def next_due_ms(self) -> int | None:
        """When the next back-off ends."""
        first = self._redis.zrange(self._keys.delayed, 0, 0, withscores=True)
        return int(first[0][1]) if first else None

    def promote(self, job: Delayed, now_ms: str | int = "") -> bool:
        """Queue a job whose back-off is over."""
        call = script("job_promote").bind(
            {
                "delayed": self._keys.delayed,
                "state": self._keys.state(job.ref),
                "hot": self._keys.hot(job.ref, job.lane),
                "dirty": self._keys.dirty,
            },
            {
                "now_ms": now_ms,
                "member": job.member,
                "entry": job.entry,
                "lane": job.lane,
                "ref": str(job.ref),
                "channel": self._keys.wake,
            },
        )
        return bool(call.run(self._redis) == 1)

    def _run_keys(self, ref: RunRef) -> dict[str, str | Sequence[str]]:
        return {"leader": self._keys.leader, **run_keys(self._keys, ref)}


def known_jobs(plan: Plan, items: int) -> dict[str, int]:
    """Evaluations that ``items`` more items make known, by lane, as fields of a run's state."""
    known: dict[str, int] = {}
    for lane in plan.eval_lanes:
        known[f"known:{lane}"] = known.get(f"known:{lane}", 0) + items
    for lane in plan.session_lanes:
        count = plan.spec.sessions * plan.spec.cells_per_row
        known[f"known:{lane}"] = known.get(f"known:{lane}", 0) + count
    return known

"""The scheduler's verbs on runs: admit, refuse, feed, cancel, promote; and what it reads of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlane.run import Plan, RunSpec
from fairlane.store.attempts import Over, follow_json, run_keys
from fairlane.store.connect import RedisClient
from fairlane.store.entry import Entry
from fairlane.store.keys import Keys, RunRef
from fairlane.store.script import script
from fairlane.store.untrusted import read_untrusted

# What `run_cancel` answers where a worker has just queued a judge on a lane that the call did not name.
LANE_NOT_NAMED = -2


@dataclass(frozen=True, slots=True)
class Delayed:
    """A job that waits out its back-off."""

    member: str
    ref: RunRef
    entry: str
    lane: str


class Runs:
    """Runs in Redis, as the leader changes them.

    Every verb is fenced by the leader's epoch, but `promote`: it moves a job once, whoever asks.
    """

    def __init__(self, redis: RedisClient, keys: Keys, ttl_ms: int) -> None:
        self._redis, self._keys, self._ttl_ms = redis, keys, ttl_ms

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

    def page(self, ref: RunRef, number: int) -> bytes | None:
        """One compressed page of rows."""
        blob: bytes | None = read_untrusted(lambda: self._redis.hget(self._keys.rows(ref), str(number)))
        return blob

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

    def admit(self, spec: RunSpec, plan: Plan, epoch: int, now_ms: str | int = "") -> int:
        """1: running. 2: it had no items and is completed. 0: not admitted (again), or not the leader."""
        ref = RunRef(spec.team, spec.run)
        counts = {"items": spec.items, "jobs": spec.jobs, "steps": spec.steps}
        counts["submitted_ms"] = spec.submitted_ms
        for lane in plan.judge_lanes:
            counts[f"known:{lane}"] = counts.get(f"known:{lane}", 0) + spec.items
        call = script("run_admit").bind(
            self._run_keys(ref) | {"runs": self._keys.runs(ref.team)},
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "ref": str(ref),
                "plan": plan.model_dump_json(),
                "counts": json.dumps(counts),
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
    ) -> int:
        """Queue ``entries`` (by lane), record ``over``. 1: fed, 2: the run is over, 0: stale."""
        lanes = list(entries)
        call = script("run_feed").bind(
            self._run_keys(ref) | {"fresh": [self._keys.fresh(ref, lane) for lane in lanes]},
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "ref": str(ref),
                "from": start,
                "upto": upto,
                "lanes": json.dumps(lanes),
                "entries": json.dumps([[str(entry) for entry in entries[lane]] for lane in lanes]),
                "over": follow_json(over),
            },
        )
        return int(call.run(self._redis))

    def cancel(self, ref: RunRef, lanes: Sequence[str], epoch: int, now_ms: str | int = "") -> int:
        """Cancel a run; ``lanes`` are all there are. Returns jobs cancelled, -1 if it is not running."""
        known = set(lanes)
        while True:
            known |= self.lanes(ref)
            cancelled = self._cancel(ref, sorted(known), epoch, now_ms)
            if cancelled != LANE_NOT_NAMED:
                return cancelled

    def _cancel(self, ref: RunRef, lanes: Sequence[str], epoch: int, now_ms: str | int) -> int:
        keys = self._keys
        owned = [
            name for lane in lanes for name in (keys.lane(lane), keys.hot(ref, lane), keys.fresh(ref, lane))
        ]
        call = script("run_cancel").bind(
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

"""The scheduler's verbs on runs: admit, refuse, feed, extend, promote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fairlane.model.ending import RecordedJob, SessionCompletion
from fairlane.model.run import Plan, RunRef
from fairlane.model.tokens import Entry
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.run_queries import Delayed
from fairlane.store.script import script
from fairlane.store.write.attempts import follow_json, run_keys
from fairlane.store.write.audit import UNNAMED, Act, Auditor
from fairlane.store.write.runs.bounds import Fields, known_jobs
from fairlane.store.write.runs.run_control import RunControl


class Runs(RunControl):
    """Changes runs in Redis, for the leader.

    Every verb but `promote` is fenced by the leader's epoch; `promote` moves a job once, whoever calls it.
    """

    def __init__(self, redis: RedisClient, keys: Keys, ttl_ms: int, auditor: Auditor = UNNAMED) -> None:
        super().__init__(redis, keys, auditor)
        self._ttl_ms = ttl_ms

    def admit(
        self,
        plan: Plan,
        epoch: int,
        now_ms: str | int = "",
        *,
        bounds: Fields | None = None,
    ) -> int:
        """1: running. 2: it had no items and is completed. 0: not admitted (again), or not the leader.

        ``bounds``: see `bounds_of`.
        """
        spec = plan.spec
        ref = RunRef(spec.team, spec.run)
        fields: Fields = {
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
            self._run_keys(ref) | {"runs": self.keys.runs(ref.team), "audit": self.keys.audit},
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "ref": str(ref),
                "plan": plan.model_dump_json(),
                "counts": json.dumps(fields),
                "ttl_ms": self._ttl_ms,
                "audit": self._submitted(plan),
            },
        )
        return int(call.run(self.redis))

    def refuse(self, ref: RunRef, reason: str, submitted_ms: int, epoch: int, now_ms: str | int = "") -> bool:
        """Reject a submitted run for this reason; false where it was admitted or this is not the leader."""
        call = script("run_refuse").bind(
            self._run_keys(ref) | {"runs": self.keys.runs(ref.team), "audit": self.keys.audit},
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "ref": str(ref),
                "reason": reason,
                "submitted_ms": submitted_ms,
                "ttl_ms": self._ttl_ms,
                "audit": self._auditor.of_team(Act.REFUSED, ref.team, ref.run, reason=reason),
            },
        )
        return bool(call.run(self.redis) == 1)

    def forget_refused(self, ref: RunRef, epoch: int, now_ms: str | int = "") -> bool:
        """Delete a rejected run before it expires; false where it was not rejected."""
        keys = self.keys
        call = script("run_forget").bind(
            {
                "leader": keys.leader,
                "state": keys.state(ref),
                "spec": keys.spec(ref),
                "rows": keys.rows(ref),
                "runs": keys.runs(ref.team),
            },
            {"now_ms": now_ms, "epoch": epoch, "run": ref.run},
        )
        return bool(call.run(self.redis) == 1)

    def feed(
        self,
        ref: RunRef,
        epoch: int,
        start: int,
        upto: int,
        entries: Mapping[str, Sequence[Entry]],
        over: Sequence[RecordedJob],
        now_ms: str | int = "",
        *,
        handed: int | None = None,
        joined: Mapping[int, SessionCompletion] | None = None,
        memory: Mapping[str, str] | None = None,
    ) -> int:
        """Queue ``entries`` (by lane), record ``over``. 1: fed, 2: fed and the run has ended, 0: stale.

        ``handed``: items that this hands out; left out, as many as it looks at. ``joined``: the sessions of
        items that may be over with it. ``memory``: what later items read of these.
        """
        lanes = list(entries)
        sessions = joined or {}
        queues = [self.keys.fresh(ref, lane) for lane in lanes]
        queues += [self.keys.hot(ref, lane) for each in list(sessions.values())[:1] for lane in each.lanes]
        call = script("run_feed").bind(
            self._run_keys(ref) | {"dirty": self.keys.dirty, "queues": queues},
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "channel": self.keys.wake,
                "ref": str(ref),
                "from": start,
                "upto": upto,
                "lanes": json.dumps(lanes),
                "entries": json.dumps([[str(entry) for entry in entries[lane]] for lane in lanes]),
                "over": follow_json(over),
                "memory": json.dumps(dict(memory or {})),
                "handed": upto - start if handed is None else handed,
                "joined": json.dumps([[item, each.to_list()] for item, each in sessions.items()]),
            },
        )
        return int(call.run(self.redis))

    def extend(
        self, ref: RunRef, plan: Plan, rows: int, epoch: int, now_ms: str | int = "", *, last: bool
    ) -> int:
        """Extend an open run to ``rows`` rows. 1: extended, 2: it has ended with that, 0: stale, or nothing
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
        return int(call.run(self.redis))

    def promote(self, job: Delayed, now_ms: str | int = "") -> bool:
        """Queue a job whose back-off has ended."""
        call = script("job_promote").bind(
            {
                "delayed": self.keys.delayed,
                "state": self.keys.state(job.ref),
                "hot": self.keys.hot(job.ref, job.lane),
                "dirty": self.keys.dirty,
            },
            {
                "now_ms": now_ms,
                "member": job.member,
                "entry": job.entry,
                "lane": job.lane,
                "ref": str(job.ref),
                "channel": self.keys.wake,
            },
        )
        return bool(call.run(self.redis) == 1)

    def append(self, ref: RunRef, number: int, page: bytes) -> None:
        """Write a page of rows that the scheduler has read itself."""
        self.redis.hset(self.keys.rows(ref), str(number), page)

    def drop_page(self, ref: RunRef, number: int) -> None:
        """Forget a page of rows that can be read again where it came from."""
        self.redis.hdel(self.keys.rows(ref), str(number))

    def _submitted(self, plan: Plan) -> str:
        spec = plan.spec
        if spec.continues is None:
            return self._auditor.of_team(Act.SUBMITTED, spec.team, spec.run, jobs=spec.jobs)
        return self._auditor.of_team(
            Act.CONTINUED, spec.team, spec.run, jobs=spec.jobs, continues=spec.continues.run
        )

    def _run_keys(self, ref: RunRef) -> dict[str, str | Sequence[str]]:
        return {"leader": self.keys.leader, **run_keys(self.keys, ref)}

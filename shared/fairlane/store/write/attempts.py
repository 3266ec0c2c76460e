"""Builds the script calls of an attempt: claim, wait for, finish, defer, recover. Callers may batch them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any
from urllib.parse import quote

from fairlane.core.lru import Lru
from fairlane.model.decision import Cost
from fairlane.model.ending import ReadyJob, RecordedJob, SessionCompletion
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.results import packed
from fairlane.model.run import RunRef
from fairlane.store.keys import TOKEN_AXES, Keys
from fairlane.store.script import Call, Named, Placed
from fairlane.store.verbs import script

VERBS = ("attempt_claim", "attempt_await", "attempt_finish", "attempt_defer", "attempt_recover")

PLACES_KEPT = 1024
"""Lists of keys that are kept, by verb, run and lane: a report has 24 keys, most of what it sends."""


def run_keys(keys: Keys, ref: RunRef) -> dict[str, str]:
    """Everything a run owns besides its queues, by the names that scripts use."""
    return {
        "active": keys.active,
        "state": keys.state(ref),
        "plan": keys.plan(ref),
        "results": keys.results(ref),
        "finished": keys.finished(ref),
        "done": keys.done(ref),
        "jobs": keys.jobs(ref),
        "run_lanes": keys.run_lanes(ref),
        "spec": keys.spec(ref),
        "rows": keys.rows(ref),
        "memory": keys.memory(ref),
        "sessions": keys.sessions(ref),
        "fed": keys.fed(ref),
    }


def named_keys(
    keys: Keys, ref: RunRef | None = None, lane: str | None = None, **lists: str | Sequence[str]
) -> Named:
    """The deployment's keys, a run's with its team's, and a lane's, by the names that scripts use.

    ``lists`` are those that only the caller knows.
    """
    found = Named(vars(keys))  # its attributes are the deployment's keys
    if ref is not None:
        found.update(run_keys(keys, ref), runs=keys.runs(ref.team), budget=keys.budget(ref.team))
    if lane is not None:
        found.update(headroom_keys(keys, lane), lane=keys.lane(lane), limits=keys.limits(lane))
        found.update(owed=keys.owed(lane), in_flight=keys.in_flight(lane))
        found.update(reserved_shares=keys.reserved_shares(lane))
    if ref is not None and lane is not None:
        found.update(hot=keys.hot(ref, lane), fresh=keys.fresh(ref, lane))
    found.update(lists)
    return found


def headroom_keys(keys: Keys, lane: str) -> dict[str, str]:
    """A lane's lists of charges, one for each token axis, by the names that scripts use."""
    return {f"headroom_{axis}": keys.headroom(lane, axis) for axis in TOKEN_AXES}


class Attempts:
    """Builds the calls. ``now_ms`` is empty in production: decisions use the Redis server's clock."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._placed: Lru[tuple[str, str, str, str], Placed] = Lru(PLACES_KEPT)
        self._claims = _numbered(secrets.token_hex(8))
        for verb in VERBS:
            script(verb)  # composed now, since the first call of a worker should not wait for it

    def _place(self, verb: str, attempt: Attempt, keys: Callable[[], dict[str, Any]]) -> Placed:
        """A verb's keys for an attempt of this run and lane, made once."""
        return self._placed.get_or_make(
            (verb, attempt.lane, attempt.team, attempt.run), lambda: script(verb).place(keys())
        )

    def claim(self, attempt: Attempt, worker: str, lease_ms: int, now_ms: str | int = "") -> Call:
        """Claim an attempt. The call may be sent again if its reply was lost; other claims are rejected."""
        keys, ref = self._keys, RunRef(attempt.team, attempt.run)
        placed = self._place(
            "attempt_claim",
            attempt,
            lambda: {
                "leases": keys.leases,
                "clock": keys.clock,
                "leased": keys.leased,
                "lane": keys.lane(attempt.lane),
                "jobs": keys.jobs(ref),
                "state": keys.state(ref),
            },
        )
        return script("attempt_claim").bind(
            placed,
            {
                "now_ms": now_ms,
                "attempt": attempt.id,
                "job": attempt.job,
                "lane": attempt.lane,
                "worker": worker,
                "claim": next(self._claims),
                "lease_ms": lease_ms,
            },
        )

    def wait_for(self, attempt: Attempt, worker: str, handle: str, *, frees_slot: bool) -> Call:
        """The provider makes the call that ``handle`` names, and is only asked for it. The reply is 1, or 0
        where the lease is lost. ``frees_slot``: the attempt counts in flight, and against no slot.
        """
        keys = self._keys
        return script("attempt_await").bind(
            {
                "leases": keys.leases,
                "leased": keys.leased,
                "lane": keys.lane(attempt.lane),
                "in_flight": keys.in_flight(attempt.lane),
                "dirty": keys.dirty,
                "starved": keys.starved,
                "jobs": keys.jobs(RunRef(attempt.team, attempt.run)),
            },
            {
                "channel": keys.wake,
                "attempt": attempt.id,
                "worker": worker,
                "handle": quote(handle, safe=""),
                "frees": int(frees_slot),
            },
        )

    def finish(
        self,
        attempt: Attempt,
        worker: str,
        feedback: Feedback,
        state: JobState,
        payload: str,
        follow: Sequence[ReadyJob | RecordedJob] = (),
        now_ms: str | int = "",
        *,
        memory: Mapping[str, str] | None = None,
        joined: SessionCompletion | None = None,
        took_ms: int | None = None,
        served: str = "",
    ) -> Call:
        """End the attempt with its job's terminal record. ``memory`` holds the values that later items of the
        run read of this one; ``joined`` is the item's session, if any. ``took_ms``: the call's duration by
        the worker's monotonic clock; without it, the time from its claim counts. ``served`` is the
        `served_field` of the model that answered, if any.
        """
        ref = RunRef(attempt.team, attempt.run)
        placed = self._place(
            "attempt_finish",
            attempt,
            lambda: (
                self._lane_keys(attempt.lane)
                | run_keys(self._keys, ref)
                | {"budget": self._keys.budget(attempt.team), "hot": []}
            ),
        )
        return script("attempt_finish").bind(
            placed.followed_by(self._queues(ref, follow, joined)),
            self._report(attempt, worker, feedback, now_ms)
            | {
                "state": state,
                "payload": packed(payload),
                "follow": follow_json(follow),
                "memory": json.dumps(dict(memory or {})),
                "joined": joined.to_json() if joined else "",
                "took_ms": "" if took_ms is None else took_ms,
                "served": served,
            },
        )

    def defer(
        self,
        attempt: Attempt,
        worker: str,
        feedback: Feedback,
        *,
        delay_ms: int = 0,
        cost: Cost = "nothing",
        max_attempts: int = 0,
        rate_limited: bool = False,
        handle: str | None = None,
        now_ms: str | int = "",
    ) -> Call:
        """End the attempt without its job, which is called again after ``delay_ms``.

        ``cost`` is what the call costs its job. A job that has used up ``max_attempts`` (0: any number) with
        it stays leased. ``handle`` names an asynchronous call that the next attempt resumes.
        """
        keys, ref = self._keys, RunRef(attempt.team, attempt.run)
        placed = self._place(
            "attempt_defer",
            attempt,
            lambda: (
                self._lane_keys(attempt.lane)
                | {
                    "state": keys.state(ref),
                    "jobs": keys.jobs(ref),
                    "delayed": keys.delayed,
                    "hot": keys.hot(ref, attempt.lane),
                    "budget": keys.budget(attempt.team),
                }
            ),
        )
        return script("attempt_defer").bind(
            placed,
            self._report(attempt, worker, feedback, now_ms)
            | {"delay_ms": delay_ms, "cost": cost, "max_attempts": max_attempts, "limited": int(rate_limited)}
            | {"handle": quote(handle or "", safe="")},
        )

    def recover(
        self,
        attempt: Attempt,
        epoch: int,
        *,
        worker: str,
        worker_timeout_ms: int,
        max_attempts: int,
        payload: str,
        follow: Sequence[ReadyJob | RecordedJob],
        joined: SessionCompletion | None = None,
        now_ms: str | int = "",
        damaged: bool = False,
    ) -> Call:
        """Requeue the job of a lapsed lease, or of a lease of ``worker``, if that is silent.

        Past ``max_attempts`` the job fails with ``payload``, and ``follow`` and ``joined`` apply as in
        `finish`. The reply is 0 (nothing to do), 1 (requeued) or 2 (failed). Of a ``damaged`` run no key is
        touched: the lane gets its place back, and the job is lost.
        """
        ref = RunRef(attempt.team, "" if damaged else attempt.run)
        return script("attempt_recover").bind(
            {"leader": self._keys.leader}
            | self._lane_keys(attempt.lane)
            | run_keys(self._keys, ref)
            | {"budget": self._keys.budget(attempt.team), "workers": self._keys.workers}
            | {"hot": [self._keys.hot(ref, attempt.lane), *self._queues(ref, follow, joined)]},
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "channel": self._keys.wake,
                "attempt": attempt.id,
                "worker": worker,
                "worker_timeout_ms": worker_timeout_ms,
                "max_attempts": max_attempts,
                "payload": payload,
                "follow": follow_json(follow),
                "joined": joined.to_json() if joined else "",
            },
        )

    def _queues(
        self, ref: RunRef, follow: Sequence[ReadyJob | RecordedJob], joined: SessionCompletion | None
    ) -> list[str]:
        lanes = [step.lane for step in follow if isinstance(step, ReadyJob)] + (
            joined.lanes if joined else []
        )
        return [self._keys.hot(ref, lane) for lane in lanes]

    def _lane_keys(self, lane: str) -> dict[str, str | Sequence[str]]:
        keys = self._keys
        return {
            "clock": keys.clock,
            "leases": keys.leases,
            "leased": keys.leased,
            "lane": keys.lane(lane),
            "limits": keys.limits(lane),
            "owed": keys.owed(lane),
            "in_flight": keys.in_flight(lane),
            **headroom_keys(keys, lane),
            "dirty": keys.dirty,
            "starved": keys.starved,
        }

    def _report(
        self, attempt: Attempt, worker: str, feedback: Feedback, now_ms: str | int
    ) -> dict[str, str | int | float | bytes]:
        return {
            "now_ms": now_ms,
            "channel": self._keys.wake,
            "attempt": attempt.id,
            "worker": worker,
            "signal": feedback.signal,
            "sent": int(feedback.sent),
            "used_input": _known(feedback.usage.input_tokens),
            "used_output": _known(feedback.usage.output_tokens),
            "used_cached": _known(feedback.usage.cached_tokens),
            "retry_after_ms": feedback.retry_after_ms or 0,
            "hints": feedback.hints.to_json() if feedback.hints else "",
            "reason": feedback.reason,
            "deadline_ms": feedback.deadline_ms or 0,
            "proxy_ms": feedback.proxy_ms or 0,
            "refusal": feedback.refusal,
        }


def _numbered(prefix: str) -> Iterator[str]:
    """Names that no other process makes, without asking the system for random bytes each time."""
    return (f"{prefix}-{n}" for n in count())


def _known(tokens: int | None) -> int:
    return -1 if tokens is None else tokens


def follow_json(follow: Sequence[ReadyJob | RecordedJob]) -> str:
    """The steps that follow an ended job, as ``lib/job/follow_up.lua`` reads it."""
    if not follow:
        return "[]"
    return json.dumps(
        [
            [step.job, "ready", str(step.entry), step.lane]
            if isinstance(step, ReadyJob)
            else [step.job, step.state, step.payload, step.lane]
            for step in follow
        ],
        separators=(",", ":"),
    )

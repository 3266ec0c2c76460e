"""An attempt's verbs as calls: claim, wait for, finish, defer, recover. Whoever executes them may batch."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from fairlane.hints import Hints
from fairlane.job import Attempt, JobState, Usage
from fairlane.results import packed
from fairlane.store.entry import Entry
from fairlane.store.keys import TOKEN_AXES, Keys, RunRef
from fairlane.store.script import Call, script
from fairlane.store.sessions import Joined

Signal = Literal["ok", "answered", "limited", "overloaded", "broken", "refused", "none"]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What an attempt's end says of its lane."""

    signal: Signal
    usage: Usage = field(default_factory=Usage)
    retry_after_ms: int | None = None
    reason: str = ""
    hints: Hints | None = None


class Ready(NamedTuple):
    """An evaluation that may be made now: ``entry`` is queued on its lane."""

    entry: Entry
    lane: str

    @property
    def job(self) -> int:
        return self.entry.job


class Over(NamedTuple):
    """A job that is over without an attempt: it is recorded at once. What was "given" was no job to do."""

    job: int
    state: JobState | Literal["given"]
    payload: str
    lane: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A granted claim: what the job has spent so far, and how long its permit waited.

    ``handle`` names a call that an earlier attempt has begun and that the provider goes on with.
    """

    attempts: int
    rate_limits: int
    waited_ms: int
    handle: str | None = None

    @classmethod
    def of(cls, reply: Sequence[Any]) -> Claim | None:
        """The reply of ``attempt_claim``; ``None`` where the attempt is stale."""
        if reply[0] != 1:
            return None
        attempts, rate_limits, waited_ms, *handle = reply[1:]
        return cls(attempts, rate_limits, waited_ms, unquote(bytes(handle[0]).decode()) if handle else None)


@dataclass(frozen=True, slots=True)
class Reported:
    """An applied report: calls now in flight on the lane, news of the lane, whether the run has ended."""

    in_flight: int
    news: str
    finished: bool

    @classmethod
    def of(cls, reply: Sequence[Any]) -> Reported | None:
        """The reply of ``attempt_finish`` or ``attempt_defer``; ``None`` where the report was late."""
        if reply[0] == 0:
            return None
        return cls(int(reply[1]), bytes(reply[2]).decode(), len(reply) > 3 and reply[3] == 1)


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
    }


def headroom_keys(keys: Keys, lane: str) -> dict[str, str]:
    """A lane's lists of charges, one for each token axis, by the names that scripts use."""
    return {f"headroom_{axis}": keys.headroom(lane, axis) for axis in TOKEN_AXES}


class Attempts:
    """Builds the calls. ``now_ms`` is empty in production: decisions use the Redis server's clock."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def claim(self, attempt: Attempt, worker: str, lease_ms: int, now_ms: str | int = "") -> Call:
        """Ask to start an attempt. This call may be sent again if its answer was lost; another is refused."""
        keys = self._keys
        return script("attempt_claim").bind(
            {
                "leases": keys.leases,
                "leased": keys.leased,
                "jobs": keys.jobs(RunRef(attempt.team, attempt.run)),
            },
            {
                "now_ms": now_ms,
                "attempt": attempt.id,
                "job": attempt.job,
                "worker": worker,
                "claim": secrets.token_hex(8),
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
                "flying": keys.flying(attempt.lane),
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
        lesson: Lesson,
        state: JobState,
        payload: str,
        follow: Sequence[Ready | Over] = (),
        now_ms: str | int = "",
        *,
        memory: Mapping[str, str] | None = None,
        joined: Joined | None = None,
    ) -> Call:
        """``memory`` is what later items of the run read of this one; ``joined`` the item's session, if
        any.
        """
        ref = RunRef(attempt.team, attempt.run)
        hot = self._queues(ref, follow, joined)
        return script("attempt_finish").bind(
            self._lane_keys(attempt.lane)
            | run_keys(self._keys, ref)
            | {"budget": self._keys.budget(attempt.team), "hot": hot},
            self._report(attempt, worker, lesson, now_ms)
            | {
                "state": state,
                "payload": packed(payload),
                "follow": follow_json(follow),
                "memory": json.dumps(dict(memory or {})),
                "joined": joined.to_json() if joined else "",
            },
        )

    def defer(
        self,
        attempt: Attempt,
        worker: str,
        lesson: Lesson,
        *,
        delay_ms: int = 0,
        costs_attempt: bool = False,
        rate_limited: bool = False,
        handle: str | None = None,
        now_ms: str | int = "",
    ) -> Call:
        """``handle`` names the call that the job's next attempt goes on with."""
        keys, ref = self._keys, RunRef(attempt.team, attempt.run)
        return script("attempt_defer").bind(
            self._lane_keys(attempt.lane)
            | {
                "state": keys.state(ref),
                "jobs": keys.jobs(ref),
                "delayed": keys.delayed,
                "hot": keys.hot(ref, attempt.lane),
                "budget": keys.budget(attempt.team),
            },
            self._report(attempt, worker, lesson, now_ms)
            | {"delay_ms": delay_ms, "attempts": int(costs_attempt), "limited": int(rate_limited)}
            | {"handle": quote(handle or "", safe="")},
        )

    def recover(
        self,
        attempt: Attempt,
        epoch: int,
        *,
        dead_worker: str,
        max_attempts: int,
        payload: str,
        follow: Sequence[Ready | Over],
        joined: Joined | None = None,
        now_ms: str | int = "",
    ) -> Call:
        ref = RunRef(attempt.team, attempt.run)
        return script("attempt_recover").bind(
            {"leader": self._keys.leader}
            | self._lane_keys(attempt.lane)
            | run_keys(self._keys, ref)
            | {"budget": self._keys.budget(attempt.team)}
            | {"hot": [self._keys.hot(ref, attempt.lane), *self._queues(ref, follow, joined)]},
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "channel": self._keys.wake,
                "attempt": attempt.id,
                "dead_worker": dead_worker,
                "max_attempts": max_attempts,
                "payload": payload,
                "follow": follow_json(follow),
                "joined": joined.to_json() if joined else "",
            },
        )

    def _queues(self, ref: RunRef, follow: Sequence[Ready | Over], joined: Joined | None) -> list[str]:
        lanes = [step.lane for step in follow if isinstance(step, Ready)] + (joined.lanes if joined else [])
        return [self._keys.hot(ref, lane) for lane in lanes]

    def _lane_keys(self, lane: str) -> dict[str, str | Sequence[str]]:
        keys = self._keys
        return {
            "leases": keys.leases,
            "leased": keys.leased,
            "lane": keys.lane(lane),
            "limits": keys.limits(lane),
            "owed": keys.owed(lane),
            "flying": keys.flying(lane),
            **headroom_keys(keys, lane),
            "dirty": keys.dirty,
            "starved": keys.starved,
        }

    def _report(
        self, attempt: Attempt, worker: str, lesson: Lesson, now_ms: str | int
    ) -> dict[str, str | int | float | bytes]:
        return {
            "now_ms": now_ms,
            "channel": self._keys.wake,
            "attempt": attempt.id,
            "worker": worker,
            "signal": lesson.signal,
            "used_input": _known(lesson.usage.input_tokens),
            "used_output": _known(lesson.usage.output_tokens),
            "used_cached": _known(lesson.usage.cached_tokens),
            "retry_after_ms": lesson.retry_after_ms or 0,
            "hints": lesson.hints.to_json() if lesson.hints else "",
            "reason": lesson.reason,
        }


def _known(count: int | None) -> int:
    return -1 if count is None else count


def follow_json(follow: Sequence[Ready | Over]) -> str:
    """What comes after a job's end, as ``lib/follow.lua`` reads it."""
    if not follow:
        return "[]"
    return json.dumps(
        [
            [step.job, "ready", str(step.entry), step.lane]
            if isinstance(step, Ready)
            else [step.job, step.state, step.payload, step.lane]
            for step in follow
        ],
        separators=(",", ":"),
    )

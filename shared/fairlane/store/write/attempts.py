"""Builds the script calls of an attempt: claim, wait for, finish, defer, recover. Callers may batch them."""

import json
import secrets
from collections.abc import Iterator, Sequence
from itertools import count
from urllib.parse import quote

from fairlane.core.lru import Lru
from fairlane.model.decision import Defer
from fairlane.model.ending import Completion, NextJob, ReadyJob
from fairlane.model.job import Attempt, Feedback
from fairlane.model.results import packed
from fairlane.model.run import RunRef
from fairlane.store.keys import TOKEN_AXES, Keys
from fairlane.store.script import Call, Named, Placed, Value
from fairlane.store.verbs import script

VERBS = ("attempt_claim", "attempt_await", "attempt_finish", "attempt_defer", "attempt_recover")

PLACES_KEPT = 1024
"""Encoded key lists that are kept, by verb, run and lane: a report's 24 keys are most of its bytes."""

_OF_RUN = (
    *("state", "plan", "results", "finished", "done", "jobs"),
    *("run_lanes", "spec", "rows", "memory", "sessions", "fed"),
)
_OF_LANE = ("lane", "limits", "owed", "in_flight", "reserved_shares")
_FROM_KEYS = {"channel": "wake", "control": "control", "ref": "ref"}
"""Arguments of verbs that are taken from `named_keys`, by their names there."""


def run_keys(keys: Keys, ref: RunRef) -> dict[str, str]:
    """All keys of a run except its queues, by the names that scripts use."""
    return {name: getattr(keys, name)(ref) for name in _OF_RUN}


def named_keys(
    keys: Keys, ref: RunRef | None = None, lane: str | None = None, **lists: str | Sequence[str]
) -> Named:
    """Keys of the deployment, a run, its team and a lane, by the names that scripts use.

    ``lists``: further keys that only the caller knows.
    """
    found = Named(vars(keys))  # its attributes are the deployment's keys
    if ref is not None:
        found.update(run_keys(keys, ref), runs=keys.runs(ref.team), budget=keys.budget(ref.team))
        found["ref"] = str(ref)
    if lane is not None:
        found.update({name: getattr(keys, name)(lane) for name in _OF_LANE})
        found.update({f"headroom_{axis}": keys.headroom(lane, axis) for axis in TOKEN_AXES})
    if ref is not None and lane is not None:
        found.update(hot=keys.hot(ref, lane), fresh=keys.fresh(ref, lane))
    found.update(lists)
    return found


def bound(verb: str, keys: Named, **values: Value) -> Call:
    """The call of a verb with these arguments. Those in `_FROM_KEYS` are added. Raises `ScriptError`."""
    found = script(verb)
    added = {name: keys[key] for name, key in _FROM_KEYS.items() if name in found.args}
    return found.bind(keys, added | values)


class Attempts:
    """Builds the calls. ``now_ms`` is empty in production: decisions use the Redis server's clock."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._placed: Lru[tuple[str, str, str, str], Placed] = Lru(PLACES_KEPT)
        self._claims = _numbered(secrets.token_hex(8))
        for verb in VERBS:
            script(verb)  # composed now, so that a worker's first call does not wait for it

    def _place(self, verb: str, attempt: Attempt, **lists: Sequence[str]) -> Placed:
        """A verb's encoded keys for an attempt's run and lane, from the cache."""

        def make() -> Placed:
            ref = RunRef(attempt.team, attempt.run)
            return script(verb).place(named_keys(self._keys, ref, attempt.lane, **lists))

        return self._placed.get_or_make((verb, attempt.lane, attempt.team, attempt.run), make)

    def claim(self, attempt: Attempt, worker: str, lease_ms: int, now_ms: str | int = "") -> Call:
        """Claim an attempt. The call may be sent again if its reply was lost; other claims are rejected."""
        return script("attempt_claim").bind(
            self._place("attempt_claim", attempt),
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
        """Note the ``handle`` by which a worker polls an asynchronous call at its provider.

        The reply is 1, or 0 if the lease is lost. ``frees_slot``: the attempt stays in flight, but holds no
        slot.
        """
        return script("attempt_await").bind(
            self._place("attempt_await", attempt),
            {
                "channel": self._keys.wake,
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
        completion: Completion,
        now_ms: str | int = "",
        *,
        took_ms: int | None = None,
        served: str = "",
    ) -> Call:
        """End the attempt with its job's terminal record. ``took_ms``: the call's duration by the worker's
        monotonic clock; without it, the time from its claim counts. ``served`` is the `served_field` of the
        model that answered, if any.
        """
        ref = RunRef(attempt.team, attempt.run)
        placed = self._place("attempt_finish", attempt, hot=[])
        return script("attempt_finish").bind(
            placed.followed_by(following_queues(self._keys, ref, completion)),
            {
                **self._report(attempt, worker, feedback, now_ms),
                **ended_values(completion),
                "payload": packed(completion.payload),
                "state": completion.state,
                "memory": json.dumps(dict(completion.memory)),
                "took_ms": "" if took_ms is None else took_ms,
                "served": served,
            },
        )

    def defer(
        self,
        attempt: Attempt,
        worker: str,
        decision: Defer,
        *,
        handle: str | None = None,
        now_ms: str | int = "",
    ) -> Call:
        """End the attempt, and requeue its job after the decision's delay.

        A job that has used up its ``max_attempts`` (0: any number) with it stays leased. ``handle`` names an
        asynchronous call that the next attempt resumes.
        """
        return script("attempt_defer").bind(
            self._place("attempt_defer", attempt),
            {
                **self._report(attempt, worker, decision.feedback, now_ms),
                "delay_ms": decision.delay_ms,
                "cost": decision.cost,
                "max_attempts": decision.max_attempts,
                "limited": int(decision.rate_limited),
                "handle": quote(handle or "", safe=""),
            },
        )

    def recover(
        self,
        attempt: Attempt,
        epoch: int,
        *,
        worker: str,
        worker_timeout_ms: int,
        max_attempts: int,
        completion: Completion,
        now_ms: str | int = "",
        damaged: bool = False,
    ) -> Call:
        """Requeue the job of a lapsed lease, or of a lease of ``worker``, if that is silent.

        Past ``max_attempts`` the job fails with ``completion``. The reply is 0 (nothing to do), 1 (requeued)
        or 2 (failed). For a ``damaged`` run it touches no key of the run: only the lane's call ends, and the
        job is lost.
        """
        ref = RunRef(attempt.team, "" if damaged else attempt.run)
        queues = [self._keys.hot(ref, attempt.lane), *following_queues(self._keys, ref, completion)]
        return bound(
            "attempt_recover",
            named_keys(self._keys, ref, attempt.lane, hot=queues),
            now_ms=now_ms,
            epoch=epoch,
            attempt=attempt.id,
            worker=worker,
            worker_timeout_ms=worker_timeout_ms,
            max_attempts=max_attempts,
            **ended_values(completion),
        )

    def _report(
        self, attempt: Attempt, worker: str, feedback: Feedback, now_ms: str | int
    ) -> dict[str, Value]:
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
    """Unique names that no other process makes, with random bytes only in the first part."""
    return (f"{prefix}-{n}" for n in count())


def _known(tokens: int | None) -> int:
    return -1 if tokens is None else tokens


def follow_json(follow: Sequence[NextJob]) -> str:
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


def following_queues(keys: Keys, ref: RunRef, completion: Completion) -> list[str]:
    """The queues of jobs that an ended job makes ready."""
    lanes = [step.lane for step in completion.follow if isinstance(step, ReadyJob)]
    if completion.session is not None:
        lanes += completion.session.lanes
    return [keys.hot(ref, lane) for lane in lanes]


def ended_values(completion: Completion) -> dict[str, Value]:
    """Arguments of the verbs that end a job: its result, and what follows it."""
    return {
        "payload": completion.payload,
        "follow": follow_json(completion.follow),
        "joined": completion.session.to_json() if completion.session else "",
    }

"""Detects runs of which Redis has lost a part: whole keys, or a client's request.

An eviction policy or a person deletes keys; a server that restarts may lose its last second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.core.errors import ResultsLost, RunArchived, RunNotFound
from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import RunRef, RunState
from fairlane.store.keys import Keys
from fairlane.store.redis_client import RedisClient
from fairlane.store.run_queries import answers, read_hostile, require_here
from fairlane.store.write.runs.inbox import asked_for

LOST_RESULT = (
    "Redis has lost this result: it evicts keys unless maxmemory-policy is noeviction. Continue the run to "
    "call it again"
)
_LOST = (
    TaskResult(JobState.FAILED, error=LOST_RESULT).to_json().encode(),
    JudgeResult(JobState.FAILED, error=LOST_RESULT).to_json().encode(),
)
"""Of a task, and of an evaluation."""

_STORED = ("n:succeeded", "n:failed", "n:invalid")
"""Counters of jobs that have a stored result. Jobs of other states may have none."""


_COUNTED = ("steps", "items", "jobs", "jobs_done", "items_done", "state", "cursor", "started_ms", "ttl_ms")
"""Fields of a run's state without which it cannot end."""


def incomplete_runs(redis: RedisClient, keys: Keys) -> list[tuple[str, str]]:
    """Active runs that cannot end: the damaged key, and the key of the run's state. Raises `RedisError`.

    A part is gone, or a script that met a key of a wrong type has not counted what it recorded.
    """
    refs = [RunRef.parse(text.decode(errors="replace")) for text in redis.smembers(keys.active)]
    pipeline = redis.pipeline(transaction=True)
    for ref in refs:
        pipeline.hmget(keys.state(ref), *_COUNTED)
        pipeline.getrange(keys.plan(ref), -1, -1)
        pipeline.bitcount(keys.done(ref))
    replies, found = iter(pipeline.execute()), list[tuple[str, str]]()
    for ref, fields, end, recorded in zip(refs, replies, replies, replies, strict=True):
        state, plan = keys.state(ref), keys.plan(ref)
        if not any(fields):
            continue
        if None in fields or (end == b"}" and recorded > _most_recorded(fields)):
            found.append((state, state))
        elif end != b"}":
            found.append((plan, state))
    return sorted(found)


def _most_recorded(fields: Sequence[bytes | None]) -> int:
    """How many records the run's counts allow at most; given outputs have records, but are no jobs."""
    steps, items, jobs, over = (int(field or 0) for field in fields[:4])
    return over if jobs >= items * steps else over + items


def ask_results(pipeline: Any, keys: Keys, ref: RunRef) -> None:
    """Queue the two reads whose replies are the arguments of `require_results`."""
    pipeline.hmget(keys.state(ref), "state", "archived", *_STORED)
    pipeline.exists(keys.results(ref))


def require_results(ref: RunRef, fields: Sequence[bytes | None], stored: int) -> RunState:
    """The run's state. Raises `RunNotFound`, `RunArchived` where only a stub is left, and `ResultsLost`."""
    state = require_here(ref, *fields[:2])
    ended = sum(int(count or 0) for count in fields[2:])
    if ended and not stored:
        raise ResultsLost(ref.run, f"the results of {ended:,} jobs")
    return state


def lost_rows(ref: RunRef, fields: Sequence[bytes | None]) -> Exception:
    """The error for rows of a run that are not there; ``fields``: its state's ``state`` and ``archived``."""
    state, archived = fields
    if state is None:
        return RunNotFound(ref.run)
    return ResultsLost(ref.run, "rows of it") if archived is None else RunArchived(ref.run)


LOST_REQUEST = "the run is submitted, but Redis has lost its request, perhaps in a restart. Submit it again"


def is_unasked(redis: RedisClient, keys: Keys, ref: RunRef) -> bool:
    """Whether a run was submitted and has no state, and no request for it is left."""

    def read() -> list[Any]:
        pipeline = redis.pipeline(transaction=True)
        pipeline.hexists(keys.state(ref), "state")
        pipeline.exists(keys.spec(ref))
        pipeline.lrange(keys.inbox(ref.team), 0, -1)
        return answers(pipeline)

    known, waits, requests = read_hostile(read) or (0, 1, [])
    return bool(waits and not known) and ref.run not in asked_for("submit", requests)


def awaits_rows(redis: RedisClient, keys: Keys, ref: RunRef) -> bool:
    """Whether a run is open, and no request in the inbox adds rows or closes it."""

    def read() -> list[Any]:
        pipeline = redis.pipeline(transaction=True)
        pipeline.hget(keys.state(ref), "open")
        pipeline.lrange(keys.inbox(ref.team), 0, -1)
        return answers(pipeline)

    is_open, requests = read_hostile(read) or (None, [])
    return is_open == b"1" and ref.run not in asked_for("extend", requests)


def mark_lost_results(state: RunState, stored: Sequence[bytes | None], steps: int) -> Sequence[bytes | None]:
    """The results of items of a run, ``steps`` of each; a lost one of a completed run is a failure.

    Each job of a completed run had a result.
    """
    if state is not RunState.COMPLETED:
        return stored
    return [_LOST[place % steps > 0] if each is None else each for place, each in enumerate(stored)]

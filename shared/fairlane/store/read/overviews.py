"""Reads the status and the spec of several runs at once, and a team's newest runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from fairlane.model.run import Plan, RunRef, RunSpec
from fairlane.model.run_status import RunStatus
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.run_queries import RunFields


class Overview(NamedTuple):
    """A run's status, with its spec if it can be read (a rejected run may have none)."""

    status: RunStatus
    spec: RunSpec | None


def read_overviews(redis: RedisClient, keys: Keys, refs: Sequence[RunRef]) -> list[Overview | None]:
    """The overview of each run, in that order; ``None`` for a run that Redis does not have."""
    pipeline = redis.pipeline(transaction=True)
    for ref in refs:
        pipeline.hgetall(keys.state(ref))
        pipeline.get(keys.plan(ref))
        pipeline.get(keys.spec(ref))
    replies = pipeline.execute()
    return [_overview(ref, *replies[i * 3 : i * 3 + 3]) for i, ref in enumerate(refs)]


def newest_runs(
    redis: RedisClient, keys: Keys, team: str, waiting: Sequence[RunRef], limit: int
) -> list[RunStatus]:
    """The team's admitted runs and those that are ``waiting``, newest first. Expired ones are left out."""
    found, start = dict[str, RunStatus](), 0

    def add(refs: Sequence[RunRef]) -> None:
        overviews = zip(refs, read_overviews(redis, keys, refs), strict=True)
        found.update((str(ref), each.status) for ref, each in overviews if each)

    add(waiting)
    while len(found) < limit + len(waiting):
        page = redis.zrevrange(keys.runs(team), start, start + limit - 1)
        add([RunRef(team, run.decode()) for run in page])
        start += limit
        if len(page) < limit:
            break
    newest = sorted(found.values(), key=lambda each: (each.submitted_ms, each.run))
    return newest[-limit:][::-1]


def _overview(
    ref: RunRef, state: Mapping[bytes, bytes], plan: bytes | None, written: bytes | None
) -> Overview | None:
    spec = _readable_spec(plan, written)
    if b"state" in state:  # else it has expired, or it is lost and a later call has counted there
        return Overview(RunFields(state).status(ref, spec.name if spec else ref.run), spec)
    if plan:
        return None
    return Overview(RunStatus.submitted(spec), spec) if spec and spec.run == ref.run else None


def _readable_spec(plan: bytes | None, written: bytes | None) -> RunSpec | None:
    try:
        if plan:
            return Plan.read(plan).spec
        return RunSpec.read(written) if written else None
    except ValidationError:
        return None

"""Plays whole runs with a scheduler's and a worker's parts: fed, granted, called, and continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlane.client.submitting.continuation import Origins, continued_spec
from fairlane.model.evaluators import EvaluatorSpec
from fairlane.model.record import Record
from fairlane.model.run import RunRef, RunSpec
from fairlane.store.read.reading import RecordReader
from fairlane_scheduler.state.backlog import ActiveRun
from tests.support.worker_parts import WorkerParts

LANES = ("sim:fast", "sim:judge", "python:m.f")
MOST_ROUNDS = 60

Rows = Sequence[Mapping[str, Any]]


async def played(parts: WorkerParts, run: ActiveRun) -> list[Record]:
    """Make the calls of a run until it has ended; its records."""
    redis, keys = parts.scheduler.redis, parts.keys
    for _ in range(MOST_ROUNDS):
        parts.scheduler.clock.advance(2.5)
        parts.scheduler.leader.tick(parts.scheduler.clock.monotonic_ms(), parts.scheduler.now_ms)
        run.may_feed_next = True
        parts.scheduler.feed_all()
        for lane in LANES:
            queued = redis.llen(keys.fresh(run.ref, lane)) + redis.llen(keys.hot(run.ref, lane))
            for attempt in parts.permits(run.ref, queued, lane) if queued else ():
                await parts.executor.execute(attempt)
            parts.scheduler.backlog.set_queued(lane, run.ref, 0)
        if redis.hget(keys.state(run.ref), "state") == b"completed":
            break
    else:
        raise AssertionError(f"{run.ref} does not end: {redis.hgetall(keys.state(run.ref))}")
    return RecordReader(redis, keys, run.plan.spec).records(range(run.items))


def continued(
    parts: WorkerParts,
    old: ActiveRun,
    rows: Rows | None = None,
    *,
    run: str = "r2",
    evaluators: Sequence[EvaluatorSpec] | None = None,
    **options: Any,
) -> ActiveRun:
    """A run that continues ``old``, as a client submits it; ``rows``: those of another dataset."""
    reader = RecordReader(parts.scheduler.redis, parts.keys, old.plan.spec)
    before = [dict(row) for row in reader.rows(old.rows)]
    spec = continued_spec(old.plan.spec, run, parts.scheduler.now_ms, evaluators, **options)
    content = before if rows is None else [dict(row) for row in rows]
    origins = Origins() if rows is None else Origins(before, spec.order)
    list(origins.watch([content[at : at + spec.page_rows] for at in range(0, len(content), spec.page_rows)]))
    parts.scheduler.outbox.note(RunRef(spec.team, run), origins.fields(spec.page_rows))
    fields = {name: getattr(spec, name) for name in RunSpec.model_fields if name != "rows"}
    return parts.scheduler.admit(content, **fields)

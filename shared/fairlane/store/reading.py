"""What a client reads of its runs: the spec, how a run stands, and its records, a bounded piece at a time."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from pydantic import ValidationError

from fairlane.datasets import decode_page
from fairlane.datasets.references import SourcePages
from fairlane.errors import RunArchived, RunNotFound
from fairlane.job import JobState
from fairlane.results import assemble
from fairlane.run import LaneProgress, Pause, Plan, Record, RunSpec, RunState, RunStatus, cell_of
from fairlane.store.connect import RedisClient
from fairlane.store.inbox import Request
from fairlane.store.keys import Keys, RunRef

PAGES_KEPT = 8
"""Decoded pages of rows kept while records are read out of order."""


class Overview(NamedTuple):
    """A run's status, with its spec where it can be read (a refused run may have none)."""

    status: RunStatus
    spec: RunSpec | None


class RunReader:
    """Reads runs of any team. Raises `RunNotFound` for a run that does not exist or has expired."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def connections(self) -> frozenset[str] | None:
        """Names of the connections that the scheduler has published; ``None`` while it has not."""
        text = self._redis.get(self._keys.catalog)
        try:
            return frozenset(json.loads(text)["connections"]) if text else None
        except (ValueError, TypeError, KeyError):
            return None

    def now_ms(self) -> int:
        """The server's clock, which orders the runs of clients whose own clocks differ."""
        seconds, microseconds = self._redis.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def overview(self, ref: RunRef) -> Overview:
        """How the run stands, and its spec."""
        found = self._overviews([ref])[0]
        if found is None:
            raise RunNotFound(ref.run)
        return found

    def status(self, ref: RunRef, spec: RunSpec) -> RunStatus:
        """How the run stands, for a caller that knows its spec: one small read."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hgetall(self._keys.state(ref))
        pipeline.exists(self._keys.spec(ref))
        state, waits = pipeline.execute()
        if state:
            return status_of(ref, spec.name, state)
        if not waits:
            raise RunNotFound(ref.run)
        return _submitted(spec)

    def recent(self, team: str, limit: int) -> list[RunStatus]:
        """The team's runs, newest first: those that wait to be admitted, too. Expired ones are left out."""
        waiting = [RunRef(team, run) for run in self._asked_for(team, limit)]
        found = {str(ref): each for ref, each in zip(waiting, self._overviews(waiting), strict=True) if each}
        start = 0
        while len(found) < limit + len(waiting):
            page = self._redis.zrevrange(self._keys.runs(team), start, start + limit - 1)
            refs = [RunRef(team, run.decode()) for run in page]
            found |= {str(ref): each for ref, each in zip(refs, self._overviews(refs), strict=True) if each}
            start += limit
            if len(page) < limit:
                break
        newest = sorted(found.values(), key=lambda each: (each.status.submitted_ms, each.status.run))
        return [each.status for each in reversed(newest[-limit:])]

    def is_archived(self, ref: RunRef) -> bool:
        """Whether only a stub of the run is left here."""
        return bool(self._redis.hexists(self._keys.state(ref), "archived"))

    def handed_rows(self, ref: RunRef, spec: RunSpec) -> int:
        """Rows of an open run that have been handed out, at least; 0 while it waits to be admitted."""
        return int(self._redis.hget(self._keys.state(ref), "cursor") or 0) // spec.cells_per_row

    def finished(self, ref: RunRef, start: int, count: int) -> tuple[RunState, list[int]]:
        """The run's state, and up to ``count`` items from the ``start``-th that ended, in that order.

        Raises `RunArchived` where only a stub is left.
        """
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hmget(self._keys.state(ref), "state", "archived")
        pipeline.exists(self._keys.spec(ref))
        pipeline.lrange(self._keys.finished(ref), start, start + count - 1)
        (state, archived), waits, items = pipeline.execute()
        if state is None and not waits:
            raise RunNotFound(ref.run)
        if archived is not None:
            raise RunArchived(ref.run)
        return RunState(state.decode() if state else "submitted"), [int(item) for item in items]

    def _asked_for(self, team: str, limit: int) -> list[str]:
        """Ids of the last submissions that still lie in the inbox."""
        found = []
        for raw in self._redis.lrange(self._keys.inbox(team), -2 * limit, -1):
            try:
                request = Request.model_validate_json(raw)
            except ValidationError:
                continue
            if request.op == "submit":
                found.append(request.run)
        return found[-limit:]

    def _overviews(self, refs: Sequence[RunRef]) -> list[Overview | None]:
        pipeline = self._redis.pipeline(transaction=True)
        for ref in refs:
            pipeline.hgetall(self._keys.state(ref))
            pipeline.get(self._keys.plan(ref))
            pipeline.get(self._keys.spec(ref))
        replies = pipeline.execute()
        return [_overview(ref, *replies[i * 3 : i * 3 + 3]) for i, ref in enumerate(refs)]


# What befell the jobs of a run that have no record.
_UNFINISHED = {RunState.TIMED_OUT: JobState.TIMED_OUT, RunState.STOPPED: JobState.SKIPPED}


class RecordReader:
    """Reads one run's records; keeps a few decoded pages of its rows. Without ``rows`` they are empty."""

    def __init__(self, redis: RedisClient, keys: Keys, spec: RunSpec, *, rows: bool = True) -> None:
        self._redis, self._keys, self._spec, self._with_rows = redis, keys, spec, rows
        self._ref = RunRef(spec.team, spec.run)
        self._pages: OrderedDict[int, list[dict[str, Any]]] = OrderedDict()
        self._source_pages = SourcePages(spec)

    def records(self, items: Sequence[int]) -> list[Record]:
        """The records of ``items``, in that order, in two round trips or a few more.

        An item that never ran counts as cancelled, so ask for items that are over. Raises `RunArchived` where
        only a stub of the run is left.
        """
        spec, steps = self._spec, self._spec.steps
        if not items:
            return []
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hget(self._keys.state(self._ref), "state")
        pipeline.hget(self._keys.state(self._ref), "archived")
        jobs = chain.from_iterable(range(item * steps, (item + 1) * steps) for item in items)
        pipeline.hmget(self._keys.results(self._ref), [str(job) for job in jobs])
        state, archived, stored = pipeline.execute()
        if state is None:
            raise RunNotFound(self._ref.run)
        if archived is not None:
            raise RunArchived(self._ref.run)
        missing = _UNFINISHED.get(RunState(state.decode()), JobState.CANCELLED)
        return [
            assemble(
                spec, item, self._row(cell_of(spec, item).row), stored[i * steps : (i + 1) * steps], missing
            )
            for i, item in enumerate(items)
        ]

    def rows(self, count: int) -> Iterator[Mapping[str, Any]]:
        """The first ``count`` rows of the run, in order."""
        return (self._row(row) for row in range(count))

    def _row(self, row: int) -> Mapping[str, Any]:
        if not self._with_rows:
            return {}
        number, within = divmod(row, self._spec.page_rows)
        page = self._pages.get(number)
        if page is None:
            encoded = self._redis.hget(self._keys.rows(self._ref), str(number))
            if encoded is not None:
                page = decode_page(encoded)
            elif self._spec.source is not None:
                page = self._source_pages.page(number)
            else:
                raise RunNotFound(self._ref.run)
            self._pages[number] = page
            if len(self._pages) > PAGES_KEPT:
                self._pages.popitem(last=False)
        self._pages.move_to_end(number)
        return page[within]


def _overview(
    ref: RunRef, state: Mapping[bytes, bytes], plan: bytes | None, written: bytes | None
) -> Overview | None:
    spec = _readable_spec(plan, written)
    if state:
        return Overview(status_of(ref, spec.name if spec else ref.run, state), spec)
    return Overview(_submitted(spec), spec) if spec and spec.run == ref.run else None


def _readable_spec(plan: bytes | None, written: bytes | None) -> RunSpec | None:
    try:
        if plan:
            return Plan.read(plan).spec
        return RunSpec.read(written) if written else None
    except ValidationError:
        return None


def _submitted(spec: RunSpec) -> RunStatus:
    """A run that waits to be admitted."""
    return RunStatus(
        run=spec.run,
        team=spec.team,
        name=spec.name,
        state=RunState.SUBMITTED,
        items=spec.items,
        items_done=0,
        jobs=spec.jobs,
        jobs_done=0,
        by_state={},
        in_flight=0,
        retries=0,
        rate_limits=0,
        late_reports=0,
        lanes=(),
        submitted_ms=spec.submitted_ms,
        started_ms=None,
        finished_ms=None,
    )


def status_of(ref: RunRef, name: str, state: Mapping[bytes, bytes]) -> RunStatus:
    """How a run stands that has been admitted, by the fields of its state."""
    fields = {field.decode(): value.decode() for field, value in state.items()}

    def count(field: str) -> int:
        return int(fields.get(field, 0))

    def counts(prefix: str) -> dict[str, int]:
        return {f.removeprefix(prefix): int(v) for f, v in fields.items() if f.startswith(prefix)}

    known, over = counts("known:"), counts("over:")
    return RunStatus(
        run=ref.run,
        team=ref.team,
        name=name,
        state=RunState(fields["state"]),
        items=count("items"),
        items_done=count("items_done"),
        jobs=count("jobs"),
        jobs_done=count("jobs_done"),
        by_state={JobState(job_state): n for job_state, n in counts("n:").items()},
        in_flight=count("in_flight"),
        retries=count("retries"),
        rate_limits=count("rate_limits"),
        late_reports=count("late"),
        lanes=tuple(LaneProgress(lane, known[lane], over.get(lane, 0)) for lane in sorted(known)),
        submitted_ms=count("submitted_ms"),
        started_ms=count("started_ms") or None,
        finished_ms=count("finished_ms") or None,
        reason=fields.get("reason"),
        paused=_pause(fields),
    )


def _pause(fields: Mapping[str, str]) -> Pause | None:
    if "paused_ms" not in fields or RunState(fields["state"]).finished:
        return None
    return Pause(int(fields["paused_ms"]), fields.get("paused_by", ""))

"""Reads for clients: runs' specs, states and records, some at a time."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.lane_identity import lane_under
from fairlane.core.errors import (
    BrokenPage,
    DatasetChanged,
    ResultsLost,
    RunArchived,
    RunNotFound,
    SubmissionError,
)
from fairlane.core.lru import Lru
from fairlane.datasets.references import SourcePages
from fairlane.datasets.rows import decode_page
from fairlane.model.job import JobState
from fairlane.model.lane import FUNCTIONS, endpoint_id, lane_key, split_model
from fairlane.model.record import Record
from fairlane.model.results import Portion
from fairlane.model.run import RunRef, RunSpec, RunState
from fairlane.model.run_status import RunStatus, Scores
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys, Stored, digest_field, served_models
from fairlane.store.read.lost_parts import (
    LOST_REQUEST,
    ask_results,
    awaits_rows,
    is_unasked,
    lost_rows,
    mark_lost_results,
    require_results,
)
from fairlane.store.read.overviews import Overview, newest_runs, read_overviews
from fairlane.store.read.turn_reading import HandedRows, TurnReader
from fairlane.store.run_queries import RunFields, ended_early, read_time, require_here
from fairlane.store.write.runs.client_scores import read_client_scores
from fairlane.store.write.runs.inbox import asked_for

RESULTS_AT_ONCE = 256
"""Stored results that a reader fetches first; how many it fetches then depends on their size."""

MOST_AT_ONCE = 1024
"""A round trip is a hundredth of the time that so many records take; Redis answers it in a millisecond."""

BYTES_AT_ONCE = 1024 * 1024
"""Bytes of stored results in one round trip, which a reader holds at a time."""

PAGES_KEPT = 8
"""Decoded pages of rows kept while records are read out of order."""

_UNFINISHED = {RunState.TIMED_OUT: JobState.TIMED_OUT, RunState.STOPPED: JobState.SKIPPED}
"""The state of a job without a record, by the state of its run; else it was cancelled."""

_NONE: Mapping[str, Connection] = {}


class RunReader(Stored):
    """Reads runs of any team. Raises `RunNotFound` for a run that does not exist or has expired."""

    def now_ms(self) -> int:
        """The deployment's time, which orders the runs of clients whose own clocks differ."""
        return read_time(self._redis, self._keys).now_ms

    def overview(self, ref: RunRef) -> Overview:
        """The run's status, and its spec."""
        (found,) = read_overviews(self._redis, self._keys, [ref])
        if found is None:
            self._require_submitted(ref)
            raise RunNotFound(ref.run)
        if found.status.state is RunState.SUBMITTED:
            return found._replace(status=self._waiting(ref, found.status))
        return found._replace(status=self._with_scores(ref, found.status))

    def status(self, ref: RunRef, spec: RunSpec) -> RunStatus:
        """The run's status, for a caller that knows its spec: one small read."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hgetall(self._keys.state(ref))
        pipeline.exists(self._keys.spec(ref))
        state, waits = pipeline.execute()
        if b"state" in state:
            return self._with_scores(ref, RunFields(state).status(ref, spec.name))
        if not waits:
            raise RunNotFound(ref.run)
        return self._waiting(ref, RunStatus.submitted(spec))

    def require_results(self, ref: RunRef) -> None:
        """Raise `ResultsLost` if results of the run were stored and are gone."""
        pipeline = self._redis.pipeline(transaction=True)
        ask_results(pipeline, self._keys, ref)
        require_results(ref, *pipeline.execute())

    def _waiting(self, ref: RunRef, status: RunStatus) -> RunStatus:
        """The status of a run without a state, with a reason if it will never start.

        Raises `ResultsLost` if it had been admitted.
        """
        return replace(status, reason=LOST_REQUEST) if self.is_lost(ref) else status

    def _require_submitted(self, ref: RunRef) -> None:
        """Raise `ResultsLost` for a run that has started and lacks its state."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hexists(self._keys.state(ref), "state")
        pipeline.exists(self._keys.spec(ref))
        pipeline.exists(self._keys.plan(ref), self._keys.results(ref), self._keys.done(ref))
        known, waits, started = pipeline.execute()
        if waits and not known and started:
            raise ResultsLost(ref.run, "how far it had come")

    def client_scores(self, ref: RunRef) -> dict[str, Scores]:
        """Scores by scorer that clients have computed over all records of the run."""
        return read_client_scores(self._redis, self._keys, ref)

    def _with_scores(self, ref: RunRef, status: RunStatus) -> RunStatus:
        """The status with its clients' scores, which only a finished run has."""
        if not status.state.finished or not self._redis.exists(self._keys.client_scores(ref)):
            return status
        return replace(status, client_scores=self.client_scores(ref))

    def is_lost(self, ref: RunRef) -> bool:
        """Whether a run was submitted, but Redis has lost the request for it.

        Raises `ResultsLost` if it had been admitted.
        """
        self._require_submitted(ref)
        return is_unasked(self._redis, self._keys, ref)

    def awaits_rows(self, ref: RunRef) -> bool:
        """Whether a run is open, and no request in the inbox adds rows or closes it."""
        return awaits_rows(self._redis, self._keys, ref)

    def recent(self, team: str, limit: int) -> list[RunStatus]:
        """The team's runs, newest first: those that wait to be admitted, too. Expired ones are left out.

        One whose request Redis has lost has that as its reason.
        """
        requests = self._redis.lrange(self._keys.inbox(team), -2 * limit, -1)
        waiting = [RunRef(team, run) for run in asked_for("submit", requests)[-limit:]]
        found = newest_runs(self._redis, self._keys, team, waiting, limit)
        lost = {
            each.run
            for each in found
            if each.state is RunState.SUBMITTED
            and (ref := RunRef(team, each.run)) not in waiting
            and is_unasked(self._redis, self._keys, ref)
        }
        return [replace(each, reason=LOST_REQUEST) if each.run in lost else each for each in found]

    def is_archived(self, ref: RunRef) -> bool:
        """Whether only a stub of the run is left here."""
        return bool(self._redis.hexists(self._keys.state(ref), "archived"))

    def handed_rows(self, ref: RunRef, spec: RunSpec, since: int = 0) -> HandedRows:
        """A lower bound of the fed rows of an open run; none while it waits to be admitted.

        ``since``: so many first rows are known to be fed.
        """
        return TurnReader(self._redis, self._keys).handed_rows(ref, spec, since)

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
        if state is None:
            self._require_submitted(ref)
        if archived is not None:
            raise RunArchived(ref.run)
        return RunState(state.decode() if state else "submitted"), [int(item) for item in items]

    def served(self, ref: RunRef) -> dict[str, tuple[str, ...]]:
        """By requested model, the models that answered, if the provider named another."""
        found: dict[str, list[str]] = {}
        for pair in filter(None, map(served_models, self._redis.hgetall(self._keys.state(ref)))):
            found.setdefault(pair[0], []).append(pair[1])
        return {asked: tuple(sorted(names)) for asked, names in sorted(found.items())}


class RowReader:
    """Reads one run's rows, and keeps a few decoded pages. Warns once of rows that it cannot show."""

    def __init__(self, redis: RedisClient, keys: Keys, spec: RunSpec) -> None:
        self._redis, self._keys, self._spec = redis, keys, spec
        self._ref = RunRef(spec.team, spec.run)
        self._pages = Lru[int, list[dict[str, Any]]](PAGES_KEPT)
        self._source_pages = None
        if spec.source is not None:
            self._source_pages = SourcePages(spec.source, spec.page_rows, self._digest)
        self._warned = False

    def rows(self, count: int) -> Iterator[Mapping[str, Any]]:
        """The first ``count`` rows of the run, in order.

        Raises `ResultsLost` where Redis has lost one, and `RunNotFound` where the run has expired. Those of a
        dataset by reference are read there. Raises `SubmissionError` where they cannot be, and
        `DatasetChanged` where they are others by now.
        """
        size = self._spec.page_rows
        for first in range(0, count, size):
            rows = self._read(first // size)[: count - first]
            if len(rows) < min(size, count - first):
                raise self._lost()
            yield from rows

    def page(self, number: int) -> list[dict[str, Any]]:
        """A page; without rows if Redis has lost it, or its dataset cannot be read here or has changed.

        Raises `RunNotFound` where the run has expired, and `RunArchived` where only a stub is left.
        """
        return self._pages.get_or_make(number, lambda: self._readable(number))

    def _readable(self, number: int) -> list[dict[str, Any]]:
        try:
            return self._read(number)
        except DatasetChanged as changed:
            self._warn(f"{changed} Until then their records have empty rows.")
        except ResultsLost as lost:
            self._warn(f"{lost}. Records of those rows have empty ones")
        except SubmissionError:
            pass
        return []

    def _warn(self, message: str) -> None:
        """Warn once."""
        if not self._warned:
            self._warned = True
            warnings.warn(message, stacklevel=2)

    def _lost(self) -> Exception:
        fields = self._redis.hmget(self._keys.state(self._ref), "state", "archived")
        return lost_rows(self._ref, fields)

    def _digest(self, number: int) -> str | None:
        stored: bytes | None = self._redis.hget(self._keys.rows(self._ref), digest_field(number))
        return None if stored is None else stored.decode(errors="replace")

    def _read(self, number: int) -> list[dict[str, Any]]:
        encoded = self._redis.hget(self._keys.rows(self._ref), str(number))
        if encoded is None and self._source_pages is not None:
            return self._source_pages.page(number)
        if encoded is None:
            raise self._lost()
        try:
            return decode_page(encoded)
        except BrokenPage:
            return []


class RecordReader:
    """Reads one run's records; keeps a few decoded pages of its rows. Without ``rows`` they are empty."""

    def __init__(self, redis: RedisClient, keys: Keys, spec: RunSpec, *, rows: bool = True) -> None:
        self._redis, self._keys, self._spec, self._with_rows = redis, keys, spec, rows
        self._ref = RunRef(spec.team, spec.run)
        self._rows = RowReader(redis, keys, spec)
        self._results_at_once = RESULTS_AT_ONCE

    @property
    def items_at_once(self) -> int:
        """How many items to fetch next, by the size of the latest results."""
        return max(1, self._results_at_once // self._spec.steps)

    def records(self, items: Sequence[int]) -> list[Record]:
        """The records of ``items``, in that order: see `fetch`."""
        return list(self.fetch(items))

    def fetch(self, items: Sequence[int]) -> Iterable[Record]:
        """Fetch the parts of the records of ``items``, in two round trips or a few more.

        An item that never ran counts as cancelled, so ask for items that are over. Raises `RunArchived` where
        only a stub of the run is left, and `ResultsLost` where Redis has lost what was stored.
        """
        steps = self._spec.steps
        if not items:
            return ()
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hmget(self._keys.state(self._ref), "state", "archived", "reason")
        jobs = chain.from_iterable(range(item * steps, (item + 1) * steps) for item in items)
        # As bytes: encoding texts takes a twentieth of a client's time for a record.
        fields: Any = [b"%d" % job for job in jobs]
        pipeline.hmget(self._keys.results(self._ref), fields)
        (*counted, reason), stored = pipeline.execute()
        state = require_here(self._ref, *counted)
        if None in stored:
            RunReader(self._redis, self._keys).require_results(self._ref)
            stored = mark_lost_results(state, stored, steps)
        self._learn_size(stored)
        missing = _UNFINISHED.get(state, JobState.CANCELLED)
        why = ended_early(state, reason)
        return Portion(self._spec, items, list(self._rows_of(items)), stored, missing, why)

    def _learn_size(self, stored: Sequence[bytes | None]) -> None:
        size = sum(len(each) for each in stored if each is not None)
        self._results_at_once = max(1, min(MOST_AT_ONCE, BYTES_AT_ONCE * len(stored) // max(1, size)))

    def _rows_of(self, items: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """The row of each item, as `row` returns it. Neighbours share a page, which is looked up once."""
        cells, page_rows = self._spec.cells_per_row, self._spec.page_rows
        page, number = list[dict[str, Any]](), -1
        for item in items:
            wanted, within = divmod(item // cells, page_rows)
            if wanted != number and self._with_rows:
                page, number = self._rows.page(wanted), wanted
            yield page[within] if within < len(page) else {}

    def rows(self, count: int) -> Iterator[Mapping[str, Any]]:
        """The first ``count`` rows of the run, in order: see `RowReader.rows`."""
        return self._rows.rows(count)

    def row(self, row: int) -> Mapping[str, Any]:
        """One row of the run; empty if it is lost or damaged, so that its record stays readable."""
        return next(self._rows_of([row * self._spec.cells_per_row]))


class LaneDirectory:
    """Connections as the scheduler has published them; the settings decide for unpublished ones.

    ``names`` has the published ones; ``None`` while no scheduler has published any.
    """

    def __init__(
        self, published: Mapping[str, Mapping[str, Any]] | None, connections: Mapping[str, Connection] = _NONE
    ) -> None:
        self.names = None if published is None else frozenset(published)
        self._published, self._connections = published or {}, connections

    @classmethod
    def read(
        cls, redis: RedisClient, keys: Keys, connections: Mapping[str, Connection] = _NONE
    ) -> LaneDirectory:
        """The directory now. A change affects items fed afterwards; a run's evaluations keep their lanes."""
        return cls.parse(redis.get(keys.catalog), connections)

    @classmethod
    def parse(cls, catalog: bytes | None, connections: Mapping[str, Connection] = _NONE) -> LaneDirectory:
        """The directory out of what a scheduler has published; ``None`` if none has."""
        return cls(_published(catalog), connections)

    def lane_of(self, model: str, stated: str | None = None) -> str | None:
        """``"<connection>:<model>"`` → lane; a function's lane may be ``stated``. ``None`` if unknown."""
        try:
            connection, name = split_model(model)
        except ValueError:
            return None
        if connection == FUNCTIONS:
            return f"{FUNCTIONS}:{stated or name}"
        entry, known = self._published.get(connection, {}), self._connections.get(connection)
        if "lanes" in entry:
            return f"{entry['lanes']}:{name}" if entry.get("scope") == "model" else str(entry["lanes"])
        return lane_key(connection, name, known.scope, known.base_url) if known else None

    def lanes_of(self, connection: str) -> set[str]:
        """First parts of the names of a connection's lanes: itself, and the connection whose lanes it shares;
        or the one lane of its endpoint.
        """
        entry, known = self._published.get(connection, {}), self._connections.get(connection)
        if known is not None and known.scope == "endpoint":
            return {endpoint_id(known.base_url)}
        return {connection, str(entry.get("lanes", connection))}

    def models_of(self, connection: str) -> tuple[str, ...]:
        """The models that the connection lists, also as patterns; none if it lists none."""
        entry, known = self._published.get(connection), self._connections.get(connection)
        if entry is None:
            return known.models if known else ()
        listed = entry.get("models", ())
        return tuple(str(each) for each in listed) if isinstance(listed, list) else ()

    def protocol_of(self, connection: str) -> str | None:
        """The protocol that the connection speaks; ``None`` if it is unknown."""
        entry, known = self._published.get(connection), self._connections.get(connection)
        if entry is None:
            return known.protocol if known else None
        return str(entry.get("protocol"))

    def needs_key(self, connection: str) -> bool:
        """Whether the connection's calls need a key that workers hold; false if that is unknown."""
        entry, known = self._published.get(connection), self._connections.get(connection)
        if entry is None:
            return known is not None and known.needed_key is not None
        return bool(entry.get("key"))

    def carrier(self, lane: str) -> str:
        """The lane that carries calls of a lane of this name: another's, if its connection shares that."""
        connection = lane.partition(":")[0]
        entry = self._published.get(connection, {})
        if "lanes" not in entry or entry.get("scope") == "endpoint":
            return lane
        return lane_under(lane, entry["lanes"])


def _published(text: bytes | None) -> dict[str, Mapping[str, Any]] | None:
    try:
        found = json.loads(text or "")["connections"]
        return {name: fields for name, fields in found.items() if isinstance(fields, dict)}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None

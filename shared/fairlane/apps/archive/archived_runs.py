"""Reads and writes the archive's runs: how they ended, and their records.

An interrupted copy can be repeated and ends in one whole copy.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Table, and_, delete, func, select, update

from fairlane.apps.archive.database import Database
from fairlane.apps.archive.rows import (
    Entry,
    Finished,
    SessionEntry,
    evaluations_text,
    plain_json,
    plain_text,
    record_of,
    record_text,
    session_record_of,
)
from fairlane.apps.archive.schema import records, runs, sessions, upsert, upsert_run
from fairlane.core.errors import FairlaneError, RunNotFound
from fairlane.model.record import Record
from fairlane.model.run import Plan, RunRef, RunSpec, RunState
from fairlane.model.sessions import SessionRecord
from fairlane.store.read.overviews import Overview
from fairlane.store.run_queries import RunFields


class ArchivedRuns:
    """One deployment's runs, of any team. A run of which the copy is not whole is not there yet.

    To write one is to `begin`, `add` in any portions, and `finish`. Each is one transaction.
    """

    def __init__(self, database: Database, deployment: str) -> None:
        self._database, self._deployment = database, deployment

    def overview(self, ref: RunRef) -> Overview:
        """How the run ended, and its spec. Raises `RunNotFound`."""
        columns = (runs.c.name, runs.c.plan, runs.c.counts)
        for name, plan, counts in self._fetch(runs, ref, columns, runs.c.archived_ms.is_not(None)):
            fields = {field.encode(): value.encode() for field, value in json.loads(counts).items()}
            return Overview(RunFields(fields).status(ref, name), _spec_of(plan))
        raise RunNotFound(ref.run)

    def finished(self, ref: RunRef, start: int, count: int) -> tuple[RunState, list[int]]:
        """How the run ended, and up to ``count`` items from the ``start``-th that ended, in that order."""
        state = self.overview(ref).status.state
        stretch = and_(records.c.place >= start, records.c.place < start + count)
        found = self._fetch(records, ref, (records.c.place, records.c.item), stretch)
        return state, [item for _, item in sorted(found)]

    def records(self, ref: RunRef, items: Sequence[int]) -> list[Record]:
        """The records of ``items``, in that order. Raises `RunNotFound`."""
        columns = (records.c.item, records.c.record)
        found = {item: record_of(text) for item, text in self._fetch(records, ref, columns, _among(items))}
        try:
            return [found[item] for item in items]
        except KeyError:
            raise RunNotFound(ref.run) from None

    def sessions(self, ref: RunRef, spec: RunSpec, numbers: Sequence[int]) -> list[SessionRecord]:
        """The records of some sessions, in that order, in each of their cells. Raises `RunNotFound`."""
        columns = (sessions.c.session, sessions.c.cell, sessions.c.record)
        found = {
            (session, cell): session_record_of(text)
            for session, cell, text in self._fetch(sessions, ref, columns, sessions.c.session.in_(numbers))
        }
        try:
            return [found[number, cell] for number in numbers for cell in range(spec.cells_per_row)]
        except KeyError:
            raise RunNotFound(ref.run) from None

    def begin(self, run: Finished) -> bool:
        """False where the archive has the whole run already; else its records are to be added.

        A copy of another end of the same run, of which Redis has lost the memory, is replaced.
        """
        with self._database.writing() as connection:
            connection.execute(upsert_run(self._database.dialect), self._head(run))
            whole = connection.scalar(select(runs.c.archived_ms).where(self._of(runs, run.ref)))
            return whole is None

    def add(self, ref: RunRef, place: int, entries: Sequence[Entry]) -> None:
        """Write records; the first of them was the ``place``-th to end."""
        rows = [
            self._row(ref, entry, item=entry.record.item, place=place + number, state=str(entry.record.state))
            for number, entry in enumerate(entries)
        ]
        self._write(records, rows)

    def add_sessions(self, ref: RunRef, entries: Sequence[SessionEntry]) -> None:
        """Write records of sessions."""
        rows = [self._row(ref, entry, session=entry.session, cell=entry.cell) for entry in entries]
        self._write(sessions, rows)

    def finish(self, run: Finished, now_ms: int) -> None:
        """The copy is whole: from here the archive shows it. Raises `FairlaneError` where it is not."""
        mine = self._of(records, run.ref)
        with self._database.writing() as connection:
            connection.execute(delete(records).where(mine, records.c.item >= run.items))
            found = connection.scalar(select(func.count()).select_from(records).where(mine))
            if found != run.items:
                raise FairlaneError(f"run {run.ref.run}: the archive has {found} of its {run.items} records")
            whole = update(runs).where(self._of(runs, run.ref)).values(archived_ms=now_ms)
            connection.execute(whole)

    def _write(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            with self._database.writing() as connection:
                connection.execute(upsert(self._database.dialect, table), rows)

    def _row(self, ref: RunRef, entry: Entry | SessionEntry, **fields: Any) -> dict[str, Any]:
        texts = {"record": record_text(entry.record), "evaluations": evaluations_text(entry.evaluations)}
        return {**self._name(ref), **fields, **texts}

    def _head(self, run: Finished) -> dict[str, Any]:
        return {
            **self._name(run.ref),
            "name": plain_text(run.spec.name),
            "state": run.counts["state"],
            "items": run.items,
            "submitted_ms": run.spec.submitted_ms,
            "finished_ms": int(run.counts["finished_ms"]),
            "archived_ms": None,
            "plan": plain_text(run.plan),
            "counts": plain_json(dict(run.counts)),
        }

    def _name(self, ref: RunRef) -> dict[str, str]:
        return {"deployment": self._deployment, "team": ref.team, "run": ref.run}

    def _of(self, table: Table, ref: RunRef) -> ColumnElement[bool]:
        return and_(*(table.c[column] == value for column, value in self._name(ref).items()))

    def _fetch(
        self, table: Table, ref: RunRef, columns: Iterable[ColumnElement[Any]], condition: ColumnElement[bool]
    ) -> list[Any]:
        with self._database.reading() as connection:
            if connection is None:
                return []
            return list(connection.execute(select(*columns).where(self._of(table, ref), condition)))


def _among(items: Sequence[int]) -> ColumnElement[bool]:
    """Most reading is of a stretch of items, which needs no list."""
    if items and items[-1] - items[0] == len(items) - 1 and all(b > a for a, b in pairwise(items)):
        return records.c.item.between(items[0], items[-1])
    return records.c.item.in_(items)


def _spec_of(plan: str) -> RunSpec | None:
    try:
        return Plan.read(plan).spec
    except ValidationError:
        return None

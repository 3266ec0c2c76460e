"""Reads runs from the archive: their final states and records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Table, and_, select

from fairlane.apps.archive.database import Database
from fairlane.apps.archive.rows import record_of, session_record_of
from fairlane.apps.archive.schema import records, runs, sessions
from fairlane.core.errors import RunNotFound
from fairlane.model.record import Record
from fairlane.model.run import Plan, RunRef, RunSpec, RunState
from fairlane.model.sessions import SessionRecord
from fairlane.store.read.overviews import Overview
from fairlane.store.run_queries import RunFields


class ArchiveReader:
    """Reads one deployment's runs, of any team. A run whose copy is incomplete is not found."""

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

    def _fetch(
        self, table: Table, ref: RunRef, columns: Iterable[ColumnElement[Any]], condition: ColumnElement[bool]
    ) -> list[Any]:
        named = {"deployment": self._deployment, "team": ref.team, "run": ref.run}
        mine = and_(*(table.c[column] == value for column, value in named.items()))
        with self._database.reading() as connection:
            if connection is None:
                return []
            return list(connection.execute(select(*columns).where(mine, condition)))


def _among(items: Sequence[int]) -> ColumnElement[bool]:
    """A condition for ``items``: a range where they are consecutive, as in most reads."""
    if items and items[-1] - items[0] == len(items) - 1 and all(b > a for a, b in pairwise(items)):
        return records.c.item.between(items[0], items[-1])
    return records.c.item.in_(items)


def _spec_of(plan: str) -> RunSpec | None:
    try:
        return Plan.read(plan).spec
    except ValidationError:
        return None

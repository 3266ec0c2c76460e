"""Writes runs into the archive; an interrupted copy can be repeated and ends in one whole copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, delete, func, select, update

from fairlane.apps.archive.database import Database
from fairlane.apps.archive.rows import (
    Entry,
    Finished,
    SessionEntry,
    evaluations_text,
    plain_json,
    plain_text,
    record_text,
)
from fairlane.apps.archive.schema import records, runs, sessions, upsert, upsert_run
from fairlane.core.errors import FairlaneError
from fairlane.model.run import RunRef


class ArchiveWriter:
    """Writes one deployment's runs: `begin`, `add` in any portions, `finish`. Each is one transaction."""

    def __init__(self, database: Database, deployment: str) -> None:
        self._database, self._deployment = database, deployment

    def begin(self, run: Finished) -> bool:
        """Begin a copy; false where the archive has the complete run already. A copy of another end of the
        same run, which Redis has since lost, is replaced.
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

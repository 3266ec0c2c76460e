"""Keeps flat rows on disk until the last has passed and all columns are known."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from fairlane.export.columns import Column, Columns, fitted
from fairlane.model.record import Record

BATCH_ROWS = 5_000
BATCH_BYTES = 16 * 1024 * 1024
"""A batch ends with the row that reaches either limit; a table holds one batch in memory."""


class Spool:
    """Takes records once, and returns rows as often as needed. A context manager."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` has room for the rows; left out, the system's folder for temporary files."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._columns = Columns()
        self.count = 0

    def take(self, records: Iterable[Record]) -> None:
        """Write the rows of records to disk."""
        for record in records:
            row = self._columns.learn(record)
            self._file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
            self.count += 1

    @property
    def columns(self) -> list[Column]:
        """The columns of the rows so far."""
        return self._columns.all()

    def batches(self) -> Iterator[list[list[Any]]]:
        """All rows, a batch at a time; each has its values in the order of ``columns``, ``None`` for gaps."""
        columns, batch, size = self.columns, list[list[Any]](), 0
        self._file.seek(0)
        for line in self._file:
            row = json.loads(line)
            batch.append([fitted(row.get(name), kind) for name, kind in columns])
            size += len(line)
            if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

"""Keeps records as flat rows on disk until the last has passed, so that all columns and kinds are known."""

import dataclasses
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

from fairlane.model.record import Record
from fairlane.model.tokens import Unkept, Usage

_FIELDS = tuple(field.name for field in dataclasses.fields(Record))
_LEAST_WHOLE, _MOST_WHOLE = -(2**63), 2**63 - 1
_EXACT = 2**53
"""A float holds every whole number up to this one."""


class Kind(StrEnum):
    """The kind of a column's values. ``MIXED`` values become text: texts as they are, others as JSON."""

    EMPTY = "empty"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    LONG = "long"  # integers that floats may round: a column of both is mixed, one of integers an integer
    NUMBER = "number"
    TEXT = "text"
    MIXED = "mixed"


_KNOWN: Mapping[str, Kind] = {
    "item": Kind.INTEGER,
    "model": Kind.TEXT,
    "prompt": Kind.INTEGER,
    "repetition": Kind.INTEGER,
    "state": Kind.TEXT,
    "output": Kind.TEXT,
    "scores": Kind.NUMBER,
    "score_errors": Kind.TEXT,
    "usage": Kind.INTEGER,
    "attempts": Kind.INTEGER,
    "error": Kind.TEXT,
    "latency_ms": Kind.INTEGER,
    "cached": Kind.BOOLEAN,
    "eval_usage": Kind.INTEGER,
    "arguments": Kind.TEXT,
    "notes": Kind.TEXT,
    "unkept": Kind.INTEGER,
}
"""Kinds of the fixed fields, equal for all runs, so that their tables have the same columns."""

_NESTED = frozenset({"scores", "score_errors", "usage", "eval_usage", "arguments", "notes", "unkept"})


class Column(NamedTuple):
    """A column by its name, the path to it in a record's JSON: ``row.question``, ``scores.judge``."""

    name: str
    kind: Kind


class Columns:
    """Collects the columns of a stream of records."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Kind]] = {field: {} for field in _FIELDS}
        for field in _KNOWN.keys() - _NESTED:
            self._kinds[field][field] = _KNOWN[field]

    def learn(self, record: Record) -> dict[str, Any]:
        """The record as a flat row, without gaps; remembers its columns."""
        row: dict[str, Any] = {}
        for field in _FIELDS:
            kinds, known = self._kinds[field], _KNOWN.get(field)
            for name, value in _spread(field, getattr(record, field)):
                kind = Kind.LONG if _is_long(value) else kind_of(value)
                kinds[name] = known or _joined(kinds.get(name, Kind.EMPTY), kind)
                if value is not None:
                    row[name] = value
        return row

    def all(self) -> list[Column]:
        """The columns so far: in the order of a record's fields, then of appearance."""
        return [
            Column(name, _FINAL.get(kind, kind))
            for kinds in self._kinds.values()
            for name, kind in kinds.items()
        ]


_FINAL = {Kind.EMPTY: Kind.TEXT, Kind.LONG: Kind.INTEGER}


def _is_long(value: object) -> bool:
    return kind_of(value) is Kind.INTEGER and abs(cast(int, value)) > _EXACT


def kind_of(value: object) -> Kind:
    """The kind of a column with this value only."""
    match value:
        case None:
            return Kind.EMPTY
        case bool():
            return Kind.BOOLEAN
        case int():
            return Kind.INTEGER if _LEAST_WHOLE <= value <= _MOST_WHOLE else Kind.MIXED
        case float():
            return Kind.NUMBER
        case str():
            return Kind.TEXT
        case _:
            return Kind.MIXED


def fitted(value: Any, kind: Kind) -> Any:
    """A value converted to a column's kind. Lone surrogates, which no table can hold, become ``?``."""
    if value is None:
        return None
    match kind:
        case Kind.NUMBER:
            return float(value)
        case Kind.TEXT | Kind.MIXED | Kind.EMPTY:
            text = str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            return text if text.isascii() else text.encode(errors="replace").decode()
        case _:
            return value


def _joined(one: Kind, other: Kind) -> Kind:
    """The kind of a column that holds values of both."""
    match {one, other} - {Kind.EMPTY}:
        case kinds if len(kinds) <= 1:
            return next(iter(kinds), Kind.EMPTY)
        case kinds if kinds == {Kind.INTEGER, Kind.NUMBER}:
            return Kind.NUMBER
        case kinds if kinds == {Kind.INTEGER, Kind.LONG}:
            return Kind.LONG
        case _:
            return Kind.MIXED


def _spread(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A record's field as columns; a field of the row stays one column."""
    if isinstance(value, Usage | Unkept):
        for field in dataclasses.fields(value):
            yield from _spread(f"{path}.{field.name}", getattr(value, field.name))
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if isinstance(part, Usage | Unkept):
                yield from _spread(f"{path}.{name}", part)
            else:
                yield f"{path}.{name}", part
    else:
        yield path, value


BATCH_ROWS = 5_000
BATCH_BYTES = 16 * 1024 * 1024
"""A batch ends with the row that reaches either limit; a table holds one batch in memory."""


class Spool:
    """Takes records once, and returns rows as often as needed. A context manager."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` gets the file of rows; by default the system's folder for temporary files."""
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

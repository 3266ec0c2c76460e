"""Sessions: rows that belong together, and are also evaluated as a whole once all of their items are over.

A client numbers a run's sessions by first appearance and writes two kinds of fields beside the pages of rows:
`seats_field` tells of each row of a page its `Seat`, `members_field` which rows the sessions of a block have.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlane.errors import FairlaneError
from fairlane.job import Usage
from fairlane.run import RunSpec

MOST_ROWS = 10_000
"""Rows of one session: all of them are read for one call."""

BLOCK = 128
"""Sessions whose rows are written together."""

_MOST_BYTES = 32 * 1024 * 1024
"""Largest field as JSON: a block of the largest sessions has a third of that."""


class BrokenSessions(FairlaneError):
    """What stands in Redis of a run's sessions is not what a client writes."""


class Seat(NamedTuple):
    """Where a row belongs: the number of its session, and how many rows that has."""

    session: int
    size: int


@dataclass(frozen=True, slots=True)
class Session:
    """One session in one cell: its evaluation ``step`` (from 0) and its ``turns``, in the order of rows.

    A turn is ``{"row", "output"}``; an output is ``None`` where the row's item has none.
    """

    step: int
    turns: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """How one session was scored in one cell: by one prompt, model and repetition.

    ``session`` is what its rows have in the run's session field; ``items`` are in the order of rows.
    A score is ``None`` where the evaluator did not produce one; then ``score_errors`` says why.
    ``eval_usage`` is what each evaluation's call used.
    """

    session: Any
    model: str
    prompt: int
    repetition: int
    items: tuple[int, ...]
    scores: Mapping[str, float | None]
    score_errors: Mapping[str, str]
    eval_usage: Mapping[str, Usage] = field(default_factory=dict)


def seats_field(page: int) -> str:
    """The field of a run's rows that tells the seats of a page's rows."""
    return f"session:{page}"


def members_field(session: int) -> str:
    """The field that tells the rows of a session and its neighbours."""
    return f"members:{session // BLOCK}"


def encode_seats(seats: Sequence[Seat]) -> bytes:
    return _encode([[seat.session for seat in seats], [seat.size for seat in seats]])


def decode_seats(blob: bytes, sessions: int) -> list[Seat]:
    """The seats of a page, in a run of that many sessions. Raises `BrokenSessions`."""
    columns = _decode(blob)
    if len(columns) != 2 or len(columns[0]) != len(columns[1]):
        raise BrokenSessions("the seats of a page are not a session and a size for each row")
    seats = [Seat(*pair) for pair in zip(*columns, strict=True)]
    if not all(seat.session < sessions and 1 <= seat.size <= MOST_ROWS for seat in seats):
        raise BrokenSessions(
            f"a row is in a session beyond the {sessions:,} there are, or in one of no such size"
        )
    return seats


def encode_members(block: Sequence[Sequence[int]]) -> bytes:
    return _encode(block)


def decode_members(blob: bytes, rows: int) -> list[list[int]]:
    """The rows of each session of a block, in a run of that many rows. Raises `BrokenSessions`."""
    block = _decode(blob)
    for members in block:
        if not 1 <= len(members) <= MOST_ROWS or max(members) >= rows:
            raise BrokenSessions(f"a session has {len(members):,} rows, or one beyond the {rows:,} there are")
    return block


def _encode(numbers: Sequence[Sequence[int]]) -> bytes:
    return zlib.compress(json.dumps(numbers, separators=(",", ":")).encode(), 1)


def _decode(blob: bytes) -> list[list[int]]:
    """Lists of numbers from 0; nothing else gets through."""
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(blob, _MOST_BYTES)
        if not inflater.eof:
            raise BrokenSessions(f"sessions are cut short, or larger than {_MOST_BYTES:,} bytes")
        lists = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise BrokenSessions(f"sessions cannot be read: {error}") from error
    if not isinstance(lists, list) or not all(isinstance(each, list) for each in lists):
        raise BrokenSessions("sessions are no lists of numbers")
    if not all(type(number) is int and number >= 0 for each in lists for number in each):
        raise BrokenSessions("sessions hold what is no number")
    return lists


def first_session_job(spec: RunSpec) -> int:
    """Jobs of sessions follow those of all items."""
    return spec.items * spec.steps


def session_job(spec: RunSpec, session: int, cell: int, step: int) -> int:
    """The job of a session's evaluation ``step`` (from 0) in a cell: an item's place within its row."""
    return first_session_job(spec) + (session * spec.cells_per_row + cell) * len(spec.session_evals) + step


def session_of_job(spec: RunSpec, job: int) -> tuple[int, int, int] | None:
    """The session, cell and step of a job; ``None`` for an item's."""
    number = job - first_session_job(spec)
    if not spec.session_evals or number < 0:
        return None
    place, step = divmod(number, len(spec.session_evals))
    session, cell = divmod(place, spec.cells_per_row)
    return session, cell, step

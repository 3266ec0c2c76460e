"""Sessions: rows that belong together; their outputs are also scored as a whole once all items ended.

A client numbers a run's sessions by first appearance and writes two kinds of fields beside the pages of rows.
`memberships_field` holds the `SessionMembership` of each row of a page, `members_field` the rows of each
session of a block.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlane.core.errors import BrokenSessions
from fairlane.model.run import RunSpec
from fairlane.model.tokens import Unkept, Usage

MOST_ROWS = 10_000
"""Most rows of one session: a worker reads all of them for one call."""

BLOCK = 128
"""Sessions whose members share one Redis field: few fields, and each a few kilobytes in usual runs."""

MOST_PAGE_ROWS = 10_000
"""Most rows of a page, each of which has a session and its size."""

_NUMBER_BYTES = 12
"""Most bytes of a number as JSON, with its comma: a run has less than a billion rows."""


def key_of(value: object) -> str:
    """The identity of a session or a conversation: the JSON of a field's value, with sorted keys.

    ``1``, ``1.0`` and ``"1"`` are three; ``{"a": 1, "b": 2}`` and ``{"b": 2, "a": 1}`` are one.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


class SessionMembership(NamedTuple):
    """A row's session: its number, and how many rows it has."""

    session: int
    size: int


@dataclass(frozen=True, slots=True)
class Session:
    """One session in one cell: its evaluation ``step`` (from 0) and its ``turns``, in the order of rows.

    A turn is ``{"row", "output"}``; an output is ``None`` if the row's item has none.
    """

    step: int
    turns: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """How one session was scored in one cell: by one prompt, model and repetition.

    ``session`` is the value of the run's session field in its rows; ``items`` are in the order of rows. A
    score is ``None`` if the evaluator produced none; then ``score_errors`` says why. ``eval_usage`` has the
    tokens of each evaluation's call, ``arguments`` a judge's reason, ``notes`` which parameters its call went
    without, ``unkept`` the answers that were paid for but not kept.
    """

    session: Any
    model: str
    prompt: int
    repetition: int
    items: tuple[int, ...]
    scores: Mapping[str, float | None]
    score_errors: Mapping[str, str]
    eval_usage: Mapping[str, Usage] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    unkept: Mapping[str, Unkept] = field(default_factory=dict)


def memberships_field(page: int) -> str:
    """The field, beside a run's pages, with the memberships of a page's rows."""
    return f"session:{page}"


def members_field(session: int) -> str:
    """The field with the rows of a session and of the others in its block."""
    return f"members:{session // BLOCK}"


def encode_memberships(memberships: Sequence[SessionMembership]) -> bytes:
    """Compressed JSON of a page's memberships."""
    return _encode([[each.session for each in memberships], [each.size for each in memberships]])


def decode_memberships(blob: bytes, sessions: int) -> list[SessionMembership]:
    """The memberships of a page, in a run of that many sessions. Raises `BrokenSessions`."""
    columns = _decode(blob, 2 * MOST_PAGE_ROWS)
    if len(columns) != 2 or len(columns[0]) != len(columns[1]):
        raise BrokenSessions("the memberships of a page are not a session and a size for each row")
    memberships = [SessionMembership(*pair) for pair in zip(*columns, strict=True)]
    if not all(each.session < sessions and 1 <= each.size <= MOST_ROWS for each in memberships):
        raise BrokenSessions(
            f"a row names a session beyond the run's {sessions:,}, or a size that is not 1 to {MOST_ROWS:,}"
        )
    return memberships


def encode_members(block: Sequence[Sequence[int]]) -> bytes:
    """Compressed JSON of the rows of each session of a block."""
    return _encode(block)


def decode_members(blob: bytes, rows: int) -> list[list[int]]:
    """The rows of each session of a block, in a run of that many rows. Raises `BrokenSessions`."""
    block = _decode(blob, BLOCK * MOST_ROWS)
    for members in block:
        if not 1 <= len(members) <= MOST_ROWS or max(members) >= rows:
            raise BrokenSessions(f"a session has {len(members):,} rows, or one beyond the run's {rows:,}")
    return block


def _encode(numbers: Sequence[Sequence[int]]) -> bytes:
    return zlib.compress(json.dumps(numbers, separators=(",", ":")).encode(), 1)


def _decode(blob: bytes, most: int) -> list[list[int]]:
    """Lists of numbers from 0, at most ``most`` in all. Raises `BrokenSessions` for anything else."""
    inflater, most_bytes = zlib.decompressobj(), _NUMBER_BYTES * most + 2 * BLOCK
    try:
        text = inflater.decompress(blob, most_bytes)
        if not inflater.eof:
            raise BrokenSessions(f"sessions are cut short, or larger than {most_bytes:,} bytes")
        if text.count(b",") + text.count(b"[") > most + BLOCK:
            raise BrokenSessions(f"sessions hold more than {most:,} numbers")
        lists = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise BrokenSessions(f"sessions cannot be read: {error}") from error
    if not isinstance(lists, list) or not all(isinstance(each, list) for each in lists):
        raise BrokenSessions("sessions are not lists of numbers")
    if not all(type(number) is int and number >= 0 for each in lists for number in each):
        raise BrokenSessions("sessions hold something other than row numbers")
    return lists


def first_session_job(spec: RunSpec) -> int:
    """The first job of sessions: they follow the jobs of all items."""
    return spec.items * spec.steps


def session_job(spec: RunSpec, session: int, cell: int, step: int) -> int:
    """The job of a session's evaluation ``step`` (from 0) in a cell. ``cell`` counts the items of a row."""
    return first_session_job(spec) + (session * spec.cells_per_row + cell) * len(spec.session_evals) + step


def session_of_job(spec: RunSpec, job: int) -> tuple[int, int, int] | None:
    """The session, cell and step of a job; ``None`` for an item's."""
    number = job - first_session_job(spec)
    if not spec.session_evals or number < 0:
        return None
    place, step = divmod(number, len(spec.session_evals))
    session, cell = divmod(place, spec.cells_per_row)
    return session, cell, step

"""Numbers the sessions of a dataset in a stream of its rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from fairlane.core.errors import SubmissionError
from fairlane.datasets.row_json import FIELD
from fairlane.model.sessions import (
    BLOCK,
    MOST_ROWS,
    SessionMembership,
    encode_members,
    encode_memberships,
    key_of,
    members_field,
    memberships_field,
)

_DIGEST_BYTES = 16


class Numbering:
    """Numbers sessions by first appearance of their value in ``field``; without ``field`` there are none.

    Memory: eight bytes per row, and about 150 per session, since it keeps a digest of the value.
    """

    def __init__(self, field: str | None) -> None:
        self._field = field
        self._numbers: dict[bytes, int] = {}
        self._of_row = array("I")
        self._sizes = array("I")

    @property
    def sessions(self) -> int:
        """The number of sessions so far."""
        return len(self._numbers)

    def watch(self, pages: Iterable[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
        """Pass ``pages`` through. Raises `SubmissionError` for a row without a session, or one too many."""
        for page in pages:
            if self._field is not None:
                for row in page:
                    self._take(row, self._field)
            yield page

    def fields(self, page_rows: int) -> Iterator[tuple[str, bytes]]:
        """The fields to store beside the rows, after the last row."""
        for page, first in enumerate(range(0, len(self._of_row), page_rows)):
            numbers = self._of_row[first : first + page_rows]
            yield (
                memberships_field(page),
                encode_memberships([SessionMembership(number, self._sizes[number]) for number in numbers]),
            )
        rows, ends = self._by_session()
        for first in range(0, self.sessions, BLOCK):
            block = range(first, min(first + BLOCK, self.sessions))
            members = [list(rows[ends[number] - self._sizes[number] : ends[number]]) for number in block]
            yield members_field(first), encode_members(members)

    def _take(self, row: Mapping[str, Any], field: str) -> None:
        at = len(self._of_row) + 1
        value = row.get(field)
        if value is None:
            problem = f"the row has no {field!r}, which names its session"
            raise SubmissionError(FIELD, dict(row), problem, "Give every row one.", row=at)
        number = self._numbers.setdefault(_digest(value), len(self._numbers))
        if number == len(self._sizes):
            self._sizes.append(0)
        if self._sizes[number] == MOST_ROWS:
            problem = f"a session has more than {MOST_ROWS:,} rows"
            raise SubmissionError(FIELD, value, problem, "Split the session.", row=at)
        self._sizes[number] += 1
        self._of_row.append(number)

    def _by_session(self) -> tuple[array[int], array[int]]:
        """All rows, session by session, and the end of each session in that list."""
        ends = array("I", accumulate(self._sizes))
        free = array("I", (end - size for end, size in zip(ends, self._sizes, strict=True)))
        rows = array("I", bytes(len(self._of_row) * self._of_row.itemsize))
        for row, number in enumerate(self._of_row):
            rows[free[number]] = row
            free[number] += 1
        return rows, ends


def _digest(value: object) -> bytes:
    return blake2b(key_of(value).encode(), digest_size=_DIGEST_BYTES).digest()

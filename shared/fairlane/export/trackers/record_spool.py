"""Keeps a run's records on disk, apart by what they are compared by, and reads them as often as needed."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import merge
from typing import Generic, Self, TypeVar

from fairlane.export.lines import read_record, record_line
from fairlane.model.record import Record

Key = TypeVar("Key", bound=Hashable)


class RecordSpool(Generic[Key]):
    """Takes records once; of each it holds eight bytes in memory. A context manager.

    ``key`` says what a record belongs to, such as its model and prompt.
    """

    def __init__(self, key: Callable[[Record], Key]) -> None:
        self._key, self._file = key, tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._places: dict[Key, array[int]] = {}

    def take(self, records: Iterable[Record]) -> None:
        """Write records to disk."""
        for record in records:
            self._places.setdefault(self._key(record), array("Q")).append(self._file.tell())
            self._file.write(record_line(record).encode())

    @property
    def count(self) -> int:
        """Records that were taken."""
        return sum(map(len, self._places.values()))

    @property
    def keys(self) -> list[Key]:
        """What records belong to, in the order of appearance."""
        return list(self._places)

    def of(self, key: Key) -> Iterator[Record]:
        """The records of one key, in the order in which they came."""
        return self._read(self._places[key])

    def all(self) -> Iterator[Record]:
        """All records, in the order in which they came."""
        return self._read(merge(*self._places.values()))

    def _read(self, places: Iterable[int]) -> Iterator[Record]:
        for place in places:
            self._file.seek(place)
            yield read_record(self._file.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

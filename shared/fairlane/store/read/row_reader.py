"""Reads the rows of one run: from Redis, or from the dataset that the run refers to."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

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
from fairlane.model.run import RunRef, RunSpec
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys, digest_field
from fairlane.store.read.lost_parts import lost_rows

PAGES_KEPT = 8
"""Decoded pages of rows kept while records are read out of order."""


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
        """A page; without rows where Redis has lost it, or its dataset cannot be read here or has changed."""
        return self._pages.get_or_make(number, lambda: self._readable(number))

    def _readable(self, number: int) -> list[dict[str, Any]]:
        try:
            return self._read(number)
        except DatasetChanged as changed:
            self._warn(f"{changed} Until then their records have empty rows.")
        except ResultsLost as lost:
            self._warn(f"{lost}. Records of those rows have empty ones")
        except (SubmissionError, RunNotFound, RunArchived):
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

"""A run's records as iterators, a bounded number of them in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from fairlane.errors import SubmissionError
from fairlane.link import Link
from fairlane.polling import Pace
from fairlane.run import Record, RunSpec, RunState, RunStatus
from fairlane.sessions import BLOCK, SessionRecord
from fairlane.store.keys import RunRef

RESULTS_AT_ONCE = 256
"""Stored results fetched in one round trip."""

ITEMS_LISTED_AT_ONCE = 1000


class Records:
    """Iterates over the records of one run; rides out a restart of Redis."""

    def __init__(self, link: Link, spec: RunSpec) -> None:
        self._link, self._spec = link, spec
        self._ref = RunRef(spec.team, spec.run)
        self._patience = link.patience()
        self._reader = link.records(spec)
        self._session_reader = link.sessions(spec)

    def in_item_order(self) -> Iterator[Record]:
        """All records of a run that is over."""
        return self._of(range(self._items()))

    def as_they_finish(self) -> Iterator[Record]:
        """Each item's record once, when it is over; items that a cancelled run never finished come last."""
        told, listed, pace = _Told(), 0, Pace()
        while True:
            state, items = self._finished(listed)
            listed += len(items)
            yield from self._of([item for item in items if told.add(item)])
            if len(items) == ITEMS_LISTED_AT_ONCE:
                continue
            if state is RunState.REFUSED:
                raise refusal(self._patience.insist(lambda: self._link.runs.status(self._ref, self._spec)))
            if state.finished:
                break
            if items:
                pace.restart()
            self._link.waiter.wait(pace.next_s())
        # Also what a Redis that lost its last second has listed at a place already read.
        yield from self._of(item for item in range(self._items()) if told.add(item))

    def _items(self) -> int:
        """How many there are; of rows that came after the submission the spec says nothing."""
        if not (self._spec.open or self._spec.source):
            return self._spec.items
        return self._patience.insist(lambda: self._link.runs.status(self._ref, self._spec)).items

    def of_sessions(self) -> Iterator[SessionRecord]:
        """All records of sessions of a run that is over, in the order in which sessions first appear."""
        spec = self._spec
        size = max(1, min(BLOCK, RESULTS_AT_ONCE // (spec.cells_per_row * max(1, len(spec.session_evals)))))
        for block in range(0, spec.sessions, BLOCK):
            end = min(block + BLOCK, spec.sessions)
            for first in range(block, end, size):
                yield from self._fetch_sessions(range(first, min(first + size, end)))

    def _fetch_sessions(self, sessions: Sequence[int]) -> list[SessionRecord]:
        return self._patience.insist(lambda: self._session_reader.records(sessions))

    def _finished(self, start: int) -> tuple[RunState, list[int]]:
        return self._patience.insist(lambda: self._link.runs.finished(self._ref, start, ITEMS_LISTED_AT_ONCE))

    def _of(self, items: Iterable[int]) -> Iterator[Record]:
        remaining = iter(items)
        size = max(1, RESULTS_AT_ONCE // self._spec.steps)
        while batch := list(islice(remaining, size)):
            yield from self._fetch(batch)

    def _fetch(self, items: Sequence[int]) -> list[Record]:
        return self._patience.insist(lambda: self._reader.records(items))


def refusal(status: RunStatus) -> SubmissionError:
    """What reading the records of a refused run raises."""
    return SubmissionError(
        "run", status.run, f"was refused: {status.reason}", "Correct that and submit it again."
    )


class _Told:
    """Which items have been told of: one bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, item: int) -> bool:
        """Whether ``item`` is new."""
        byte, bit = item >> 3, 1 << (item & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(max(byte + 1 - len(self._bits), len(self._bits))))
        if self._bits[byte] & bit:
            return False
        self._bits[byte] |= bit
        return True

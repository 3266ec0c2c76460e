"""Reads a run's records as they end or in item order, and rides out a Redis that is away meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from fairlane.client.deployment import Blocking, Deployment, Pace, Steps, Wait
from fairlane.core.errors import FairlaneError, RunLost, SubmissionError
from fairlane.model.record import Record
from fairlane.model.run import RunRef, RunSpec, RunState
from fairlane.model.run_status import RunStatus
from fairlane.model.sessions import BLOCK, SessionRecord
from fairlane.store.read.reading import RESULTS_AT_ONCE
from fairlane.store.write.runs.inbox import OVERDUE_MS

ITEMS_LISTED_AT_ONCE = 1000

LOST_AFTER_MS = 5000
"""Most submissions wait less. From then on the client checks every five seconds that Redis has the
request."""


class Records:
    """Iterates over the records of one run; rides out a restart of Redis.

    Each iterator is made of steps, which an async handle takes one by one.
    """

    def __init__(self, deployment: Deployment, spec: RunSpec, closer: RunCloser | None = None) -> None:
        self._deployment, self._spec, self._closer = deployment, spec, closer
        self._ref = RunRef(spec.team, spec.run)
        self._patience = deployment.patience(spec.run)
        self._reader = deployment.records(spec)

    def as_they_finish(self) -> Iterator[Record]:
        """Yield each item's record when it finishes; unfinished items of a cancelled run last."""
        return Blocking(self.finish_steps(), self._deployment.waiter)

    def of_sessions(self) -> Iterator[SessionRecord]:
        """Yield all session records of a finished run, in the order in which sessions first appear."""
        return Blocking(self.session_steps(), self._deployment.waiter)

    def item_steps(self, place: Place | None = None) -> Iterator[Record | Wait]:
        """All records of a finished run in item order, from ``place`` on; the steps advance it."""
        at = place or Place()
        count = yield from self._items()
        for step in self._each_of(range(at.next, count)):
            if not isinstance(step, Wait):
                at.next = step.item + 1
            yield step

    def finish_steps(self, place: Place | None = None) -> Iterator[Record | Wait]:
        """The steps of `as_they_finish` from ``place`` on; they advance it."""
        at, pace = place or Place(), Pace()
        submission = SubmissionWatch(self._deployment, self._ref)
        while True:
            state, items = yield from self._finished(at.next)
            if state is RunState.SUBMITTED:
                submission.check()
            elif self._closer is not None and not state.finished:
                self._closer.check()
            yield from self._unseen(items, at.seen)
            at.next += len(items)
            if len(items) == ITEMS_LISTED_AT_ONCE:
                continue
            if state is RunState.REFUSED:
                raise refusal((yield from self._status()))
            if state.finished:
                break
            if items:
                pace.restart()
            yield Wait(pace.next_s())
        # A Redis that lost its last second may have listed items at positions already read.
        count = yield from self._items()
        yield from self._unseen(range(count), at.seen)

    def steps_by_now(self) -> Iterator[Record | Wait]:
        """Yield the record of each item that has ended, in that order, without a wait for more."""
        start, seen = 0, Seen()
        while True:
            _, items = yield from self._finished(start)
            yield from self._unseen(items, seen)
            start += len(items)
            if len(items) < ITEMS_LISTED_AT_ONCE:
                return

    def session_steps(self, place: Place | None = None) -> Iterator[SessionRecord | Wait]:
        """The steps of `of_sessions` from ``place`` on; they advance it."""
        at, spec, reader = place or Place(), self._spec, self._deployment.sessions(self._spec)
        cells = spec.cells_per_row
        size = max(1, min(BLOCK, RESULTS_AT_ONCE // (cells * max(1, len(spec.session_evals)))))
        begun = at.next // cells
        for block in range(begun // BLOCK * BLOCK, spec.sessions, BLOCK):
            end = min(block + BLOCK, spec.sessions)
            for first in range(max(block, begun), end, size):
                sessions = range(first, min(first + size, end))
                found = yield from self._patience.until_answered(partial(reader.records, sessions))
                for record in found[max(0, at.next - first * cells) :]:
                    at.next += 1
                    yield record

    def _items(self) -> Steps[int]:
        """The number of items; the spec does not count rows that came after the submission."""
        if not (self._spec.open or self._spec.source):
            return self._spec.items
        return (yield from self._status()).items

    def _status(self) -> Steps[RunStatus]:
        return self._patience.until_answered(lambda: self._deployment.runs.status(self._ref, self._spec))

    def _finished(self, start: int) -> Steps[tuple[RunState, list[int]]]:
        return self._patience.until_answered(
            lambda: self._deployment.runs.finished(self._ref, start, ITEMS_LISTED_AT_ONCE)
        )

    def _each_of(self, items: Iterable[int]) -> Iterator[Record | Wait]:
        for step in self._portions(items):
            if isinstance(step, Wait):
                yield step
            else:
                yield from step

    def _unseen(self, items: Iterable[int], seen: Seen) -> Iterator[Record | Wait]:
        for step in self._each_of(item for item in items if item not in seen):
            if isinstance(step, Wait) or seen.add(step.item):
                yield step

    def _portions(self, items: Iterable[int]) -> Iterator[Iterable[Record] | Wait]:
        remaining = iter(items)
        while batch := list(islice(remaining, self._reader.items_at_once)):
            yield (yield from self._patience.until_answered(partial(self._reader.fetch, batch)))


def refusal(status: RunStatus) -> SubmissionError:
    """The error for reading the records of a refused run."""
    return SubmissionError(
        "run", status.run, f"was refused: {status.reason}", "Correct that and submit it again."
    )


def require_spec(run: str, spec: RunSpec | None) -> RunSpec:
    """The spec of a run. Raises `FairlaneError` where this version cannot read it."""
    if spec is None:
        raise FairlaneError(f"run {run} was submitted by a newer version of Fairlane: upgrade this one")
    return spec


class Seen:
    """Remembers which items were yielded, one bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def __contains__(self, item: int) -> bool:
        return item >> 3 < len(self._bits) and bool(self._bits[item >> 3] & 1 << (item & 7))

    def add(self, item: int) -> bool:
        """Remember ``item``; whether it is new."""
        byte, bit = item >> 3, 1 << (item & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(max(byte + 1 - len(self._bits), len(self._bits))))
        if self._bits[byte] & bit:
            return False
        self._bits[byte] |= bit
        return True


class Place:
    """A reader's position: the next element or list entry, and the items that it has yielded."""

    def __init__(self) -> None:
        self.next = 0
        self.seen = Seen()


class SubmissionWatch:
    """Repeats a submission's announcement while no scheduler reacts, and detects a lost submission."""

    def __init__(self, deployment: Deployment, ref: RunRef) -> None:
        self._deployment, self._ref = deployment, ref
        now_ms = deployment.clock.monotonic_ms()
        self._announce_ms, self._next_ms = now_ms + OVERDUE_MS, now_ms + LOST_AFTER_MS

    def check(self) -> None:
        """Announce a run that is still submitted after a while. Raise `RunLost` if Redis lost its request."""
        now_ms, patience = self._deployment.clock.monotonic_ms(), self._deployment.patience()
        if now_ms >= self._announce_ms:
            self._announce_ms = now_ms + LOST_AFTER_MS
            patience.ask(lambda: self._deployment.outbox.announce(self._ref.team))
        if now_ms < self._next_ms:
            return
        self._next_ms = self._deployment.clock.monotonic_ms() + LOST_AFTER_MS
        if patience.ask(lambda: self._deployment.runs.is_lost(self._ref)):
            raise RunLost(self._ref.run, "the request to start it")


class RunCloser:
    """Repeats the request to close an open run if Redis lost it: else the run would wait for rows for ever.

    ``rows``: all rows of the run, once the writer has closed it.
    """

    def __init__(self, deployment: Deployment, ref: RunRef) -> None:
        self._deployment, self._ref = deployment, ref
        self._next_ms = 0
        self.rows: int | None = None

    def close(self, rows: int) -> None:
        """Ask for the end of the run's rows."""
        self.rows = rows
        self._next_ms = self._deployment.clock.monotonic_ms() + LOST_AFTER_MS
        self._deployment.outbox.extend(self._ref, rows, last=True)

    def check(self) -> None:
        """Repeat the request for a run that is still open after a while, if Redis lost it."""
        if self.rows is None or self._deployment.clock.monotonic_ms() < self._next_ms:
            return
        self._next_ms = self._deployment.clock.monotonic_ms() + LOST_AFTER_MS
        rows, patience = self.rows, self._deployment.patience()
        if patience.ask(lambda: self._deployment.runs.awaits_rows(self._ref)):
            patience.ask(lambda: self._deployment.outbox.extend(self._ref, rows, last=True))

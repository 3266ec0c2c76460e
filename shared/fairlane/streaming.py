"""Rows that follow their run: it begins with the first page, and ends after the last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from fairlane.datasets import pages, read_rows
from fairlane.errors import FairlaneError
from fairlane.handle import Run
from fairlane.link import Link
from fairlane.polling import Pace
from fairlane.run import RunSpec
from fairlane.store.keys import RunRef

PAGES_AHEAD = 10
"""Pages that may wait in Redis to be handed out; whoever writes more waits."""


class RunEnded(FairlaneError):
    """The run was over before all of its rows were written. Carries ``run_id`` and ``state``."""

    def __init__(self, run_id: str, state: str) -> None:
        super().__init__(f"run {run_id} is {state}: no more rows can be added")
        self.run_id, self.state = run_id, state


class RowWriter:
    """Adds rows to an open run; made by `Client.open`. As a context manager it closes the run, or cancels it
    where the block raises.
    """

    def __init__(self, link: Link, spec: RunSpec) -> None:
        self._link, self._spec = link, spec
        self._ref = RunRef(spec.team, spec.run)
        self._waiting: list[dict[str, Any]] = []
        self._rows = self._pages = 0
        self.run = Run(link, self._ref, spec)

    def write(self, *rows: Mapping[str, Any]) -> None:
        """Add rows; a page of them is sent together. Waits while many are still to be handed out.

        Raises `SubmissionError` for what is no row, `RunEnded` where the run has ended, `StoreUnavailable`.
        """
        self.extend(rows)

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """`write` for all of ``rows``, however many."""
        for row in read_rows(rows):
            self._waiting.append(row)
            if len(self._waiting) == self._spec.page_rows:
                self._send()

    def close(self) -> Run:
        """These were all rows. The run goes on; it is returned."""
        if self._waiting:
            self._send()
        with self._link.answering():
            self._link.outbox.extend(self._ref, self._rows, last=True)
        return self.run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.run.cancel()

    def _send(self) -> None:
        (page,) = pages(self._waiting, self._spec.page_rows)
        with self._link.answering():
            self._wait_for_room()
            self._link.outbox.append(self._ref, self._pages, page)
            self._rows, self._pages = self._rows + len(page), self._pages + 1
            self._link.outbox.extend(self._ref, self._rows, last=False)
        self._waiting = []

    def _wait_for_room(self) -> None:
        pace, patience = Pace(), self._link.patience()
        while True:
            handed = patience.insist(lambda: self._link.runs.handed_rows(self._ref, self._spec))
            status = patience.insist(lambda: self._link.runs.status(self._ref, self._spec))
            if status.state.finished:
                raise RunEnded(self.run.id, status.state)
            if self._rows - handed < PAGES_AHEAD * self._spec.page_rows:
                return
            self._link.waiter.wait(pace.next_s())

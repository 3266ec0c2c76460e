"""Writes the rows of an open run, page by page, while the run executes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

from fairlane.client.deployment import Deployment, Pace, Steps, Wait, finish
from fairlane.client.following.records import Closure, Submission
from fairlane.client.handle import Run
from fairlane.client.submitting.submission import ask_to_start, require_room
from fairlane.client.submitting.trial import FIRST_ROWS
from fairlane.core.errors import RunEnded, SubmissionError
from fairlane.datasets.rows import encode_page, pages, read_rows
from fairlane.model.run import RunRef, RunSpec, RunState
from fairlane.store.write.runs.inbox import Outbox

OPEN_PAGE_ROWS = 512
"""Rows a page of a run whose rows follow: jobs of whole pages then fill whole bytes of a bitmap."""

PAGES_AHEAD = 10
"""Pages that may wait in Redis to be fed; a faster writer waits."""

FirstRows: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], None]
"""Checks a run's first rows. Raises `SubmissionError`."""


def announce(deployment: Deployment, spec: RunSpec, check: FirstRows | None = None) -> RowWriter:
    """Submit a run whose rows follow; ``check`` sees the first of them before they are sent.

    Raises `InboxFull`.
    """
    require_room(deployment, spec.team)
    _check_rows_may_follow(spec)
    announced = spec.model_copy(update={"open": True, "page_rows": OPEN_PAGE_ROWS})
    ask_to_start(deployment, announced)
    return RowWriter(deployment, announced, check)


def _check_rows_may_follow(spec: RunSpec) -> None:
    """Check a run whose rows follow: it can have no evaluators of sessions. Raises `SubmissionError`."""
    if spec.session_evals:
        problem = "looks at sessions, which are distinguished while a whole dataset is uploaded"
        remedy = "Submit the rows themselves, or leave it out."
        raise SubmissionError("evaluators", spec.session_evals[0].name, problem, remedy)


class SentPages:
    """Pages of an open run that are not handed out yet: those that Redis loses are sent again."""

    def __init__(self, outbox: Outbox, ref: RunRef, page_rows: int) -> None:
        self._outbox, self._ref, self._page_rows = outbox, ref, page_rows
        self._kept: dict[int, bytes] = {}
        self._next = 0

    def send(self, page: bytes) -> None:
        """Write the next page."""
        self._outbox.append(self._ref, self._next, page)
        self._kept[self._next] = page
        self._next += 1

    def restore(self, handed: int) -> None:
        """Send again what is missing behind the first ``handed`` rows."""
        first = handed // self._page_rows
        self._kept = {number: page for number, page in self._kept.items() if number >= first}
        for number in self._outbox.absent(self._ref, list(self._kept)):
            self._outbox.append(self._ref, number, self._kept[number])


class RowWriter:
    """Adds rows to an open run; made by `Client.open`. As a context manager it closes the run, or cancels it
    where the block raises.
    """

    def __init__(self, deployment: Deployment, spec: RunSpec, check: FirstRows | None = None) -> None:
        self._deployment, self._spec, self._check = deployment, spec, check
        self._ref = RunRef(spec.team, spec.run)
        self._waiting: list[dict[str, Any]] = []
        self._rows, self._sent = 0, SentPages(deployment.outbox, self._ref, spec.page_rows)
        self._closure = Closure(deployment, self._ref)
        self.run = Run(deployment, self._ref, spec, closure=self._closure)

    def write(self, *rows: Mapping[str, Any]) -> None:
        """Add rows; a page of them is sent together. Waits while many are still to be handed out.

        Raises `SubmissionError` for what is no row. At the hundredth row it also raises it for rows that do
        not suit the run, and cancels the run. Raises `RunEnded` where the run has ended, `RunLost` where
        Redis has lost the submission, and `StoreUnavailable`. Rows that Redis loses before they are handed
        out are sent again.
        """
        self.extend(rows)

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """`write` for all of ``rows``, however many."""
        finish(self.extending(rows), self._deployment.waiter)

    def extending(self, rows: Iterable[Mapping[str, Any]]) -> Steps[None]:
        """The steps of `extend`, for a caller that waits in its own way."""
        for row in read_rows(rows):
            self._waiting.append(row)
            if len(self._waiting) == FIRST_ROWS:
                self._check_first()
            if len(self._waiting) == self._spec.page_rows:
                yield from self._sending()

    def close(self) -> Run:
        """End the rows and return the run, which continues.

        Raises `SubmissionError`, and cancels the run, if its few rows do not suit it. A run without rows
        completes at once.
        """
        return finish(self.closing(), self._deployment.waiter)

    def closing(self) -> Steps[Run]:
        """The steps of `close`."""
        self._check_first()
        if self._waiting:
            yield from self._sending()
        with self._deployment.answering():
            self._sent.restore(self._deployment.runs.handed_rows(self._ref, self._spec))
            self._closure.close(self._rows)
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

    def _check_first(self) -> None:
        """Check the first rows, once."""
        check, self._check = self._check, None
        if check is None or not self._waiting:
            return
        with self._deployment.answering():
            try:
                check(self._waiting)
            except SubmissionError:
                self.run.cancel()
                raise

    def _sending(self) -> Steps[None]:
        row_bytes = self._deployment.settings.scheduler.limits.row_bytes
        (page,) = pages(self._waiting, self._spec.page_rows, row_bytes)
        with self._deployment.answering():
            yield from self._waiting_for_room()
            self._sent.send(encode_page(page))
            self._rows += len(page)
            self._deployment.outbox.extend(self._ref, self._rows, last=False)
        self._waiting = []

    def _waiting_for_room(self) -> Steps[None]:
        pace, patience = Pace(), self._deployment.patience()
        submission = Submission(self._deployment, self._ref)
        while True:
            handed = yield from patience.insisting(
                lambda: self._deployment.runs.handed_rows(self._ref, self._spec)
            )
            status = yield from patience.insisting(
                lambda: self._deployment.runs.status(self._ref, self._spec)
            )
            if status.state.finished:
                raise RunEnded(self.run.id, status.state)
            if status.state is RunState.SUBMITTED:
                submission.check()
            if self._rows - handed < PAGES_AHEAD * self._spec.page_rows:
                self._sent.restore(handed)
                return
            yield Wait(pace.next_s())

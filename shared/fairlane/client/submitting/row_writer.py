"""Writes the rows of an open run, page by page, while the run executes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from fairlane.client.deployment import Deployment, Steps, finish
from fairlane.client.following.records import RunCloser
from fairlane.client.outputs import Run
from fairlane.client.submitting.row_sender import FirstRows, RowSender
from fairlane.client.submitting.submission import ask_to_start, require_room
from fairlane.core.errors import SubmissionError
from fairlane.datasets.rows import read_rows
from fairlane.model.run import RunRef, RunSpec

OPEN_PAGE_ROWS = 512
"""Rows a page of a run whose rows follow: jobs of whole pages then fill whole bytes of a bitmap."""

PAGES_AHEAD = 10
"""Pages that may wait in Redis to be fed; a faster writer waits."""


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
        problem = "scores sessions, which need the whole dataset at submission"
        remedy = "Submit the rows themselves, or leave it out."
        raise SubmissionError("evaluators", spec.session_evals[0].name, problem, remedy)


class RowWriter:
    """Adds rows to an open run; made by `Client.open`. Threads may share it.

    As a context manager it closes the run. It cancels the run where the block raises, or where closing it
    fails. A row is accepted or refused at once; later changes to the object do not change the row.
    """

    def __init__(self, deployment: Deployment, spec: RunSpec, check: FirstRows | None = None) -> None:
        self._deployment, ref = deployment, RunRef(spec.team, spec.run)
        closer = RunCloser(deployment, ref)
        self.sender = RowSender(deployment, spec, closer, check, PAGES_AHEAD * spec.page_rows)
        self.run = Run(deployment, ref, spec, closer=closer)

    @property
    def accepted(self) -> int:
        """Rows that were accepted so far, sent or not."""
        return self.sender.accepted

    def write(self, *rows: Mapping[str, Any]) -> None:
        """Add rows; a page of them is sent together. Waits while many rows wait to be fed.

        Raises `SubmissionError` for what is no row; neither it nor any row after it is accepted. At the
        hundredth row it also raises it for rows that do not suit the run, and cancels the run. Raises
        `RunEnded` after `close` and where the run has ended, `RunLost` where Redis has lost the submission,
        and `StoreUnavailable`.

        Accepted rows are kept until they are sent. So after `StoreUnavailable`, a timeout or an interrupt, go
        on with the next row: the next `write` or `close` sends each remaining row once. Rows that Redis loses
        before they are fed are sent again.
        """
        finish(self.extending(rows, self.sender.accepted + 1), self._deployment.waiter)

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """`write` for all of ``rows``, however many. Each is accepted as it is read: see `accepted`."""
        finish(self.extending(rows), self._deployment.waiter)

    def extending(self, rows: Iterable[Mapping[str, Any]], first: int = 1) -> Steps[None]:
        """The steps of `extend`, for a caller that waits in its own way; ``first`` numbers the first row."""
        for number, row in enumerate(read_rows(rows), start=first):
            if self.sender.accept(row, number):
                yield from self.sender.sending()

    def close(self) -> Run:
        """End the rows and return the run, which continues. Further calls do nothing.

        Raises `SubmissionError`, and cancels the run, if its few rows do not suit it; `RunEnded`, `RunLost`;
        and `StoreUnavailable`, after which it may be called again. A run without rows completes at once.
        """
        finish(self.sender.closing(), self._deployment.waiter)
        return self.run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.sender.abandon(error)
            return
        try:
            self.close()
        except BaseException as failed:
            self.sender.abandon(failed)
            raise

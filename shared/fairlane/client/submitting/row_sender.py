"""Sends the rows of an open run: several threads and tasks may add rows, and one at a time sends a page."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple, TypeAlias
from weakref import ref

from fairlane.client.deployment import Deployment, Pace, Steps, Wait
from fairlane.client.following.records import RunCloser, SubmissionWatch
from fairlane.client.submitting.trial import FIRST_ROWS
from fairlane.core.errors import FairlaneError, RunEnded, SubmissionError
from fairlane.datasets.row_json import FIELD
from fairlane.datasets.rows import MAX_PAGE_BYTES, MAX_PAGE_VALUES, PageSize, encode_row, encode_texts
from fairlane.model.run import RunRef, RunSpec, RunState
from fairlane.store.read.turn_reading import HandedRows
from fairlane.store.write.runs.inbox import Outbox

CLOSED = "closed"

UNSENT_PAGES = 4
"""Full pages that may wait for the sending thread or task; with more, adding a row waits."""

KEPT_AHEAD = 10
"""The client keeps at most so many times the rows that may wait in Redis, since a conversation may delay its
own rows while others are fed."""

TURN_S = 0.01
"""Seconds between two checks whether another thread or task still sends."""

FirstRows: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], None]
"""Checks a run's first rows. Raises `SubmissionError`."""


class SentPages:
    """Pages of an open run that are not yet fed: those that Redis loses are sent again."""

    def __init__(self, outbox: Outbox, ref: RunRef, page_rows: int) -> None:
        self._outbox, self._ref, self._page_rows = outbox, ref, page_rows
        self._kept: dict[int, bytes] = {}
        self.handed = 0
        """How many of the first rows were fed, as of the last `restore`."""

    def send(self, number: int, page: bytes) -> None:
        """Write a page. The same page may be sent again under its number."""
        self._outbox.append(self._ref, number, page)
        self._kept[number] = page

    def restore(self, handed: int) -> None:
        """Send again what is missing behind the first ``handed`` rows."""
        self.handed = handed
        first = handed // self._page_rows
        self._kept = {number: page for number, page in self._kept.items() if number >= first}
        for number in self._outbox.absent(self._ref, list(self._kept)):
            self._outbox.append(self._ref, number, self._kept[number])


class _Unsent(NamedTuple):
    """Rows behind the first ``sent`` of a run, each as JSON."""

    sent: int
    texts: list[bytes]


class Turn:
    """The right to send. It is held weakly, so that a sender interrupted in `end_turn` loses it."""


class UnsentRows:
    """Accepted rows that are not sent yet. Threads may share it, and an interrupt may come anywhere. The
    count of sent rows gives a page its number, and changes in one step with the rows. So a page that is sent
    twice has the same number and the same rows.
    """

    def __init__(self, page_rows: int, row_bytes: int) -> None:
        self._page_rows, self._row_bytes = page_rows, row_bytes
        self._lock, self._unsent, self._size = Lock(), _Unsent(0, []), PageSize()
        self.ended: str | None = None
        self._turn: ref[Turn] | None = None

    @property
    def accepted(self) -> int:
        """Rows that were added so far."""
        unsent = self._unsent
        return unsent.sent + len(unsent.texts)

    @property
    def full(self) -> int:
        """Pages that wait to be sent; once the rows have ended, the last one counts, however short."""
        pages, rest = divmod(len(self._unsent.texts), self._page_rows)
        return pages + bool(rest and self.ended)

    def add(self, row: dict[str, Any], number: int) -> bool:
        """Add a row, the ``number``-th of its source; false once the rows have ended.

        Raises `SubmissionError` for what is no JSON, too large, or too large for its page: it is not added.
        """
        text = encode_row(row, number, self._row_bytes)
        with self._lock:
            if self.ended:
                return False
            texts = self._unsent.texts
            if len(texts) % self._page_rows == 0:
                self._size = PageSize()
            if not self._size.add(text):
                raise _too_large(self._page_rows, number)
            texts.append(text)
        return True

    def end(self, reason: str = CLOSED) -> None:
        """Add no more rows, for the first ``reason`` that is given."""
        with self._lock:
            self.ended = self.ended or reason

    def first(self, count: int) -> list[dict[str, Any]]:
        """The first rows that are not sent, ``count`` at most."""
        with self._lock:
            texts = list(islice(self._unsent.texts, count))
        return [json.loads(text) for text in texts]

    def page(self) -> tuple[int, list[bytes]]:
        """The number and the rows of the page to send next."""
        with self._lock:
            return self._unsent.sent // self._page_rows, self._unsent.texts[: self._page_rows]

    @property
    def sent(self) -> int:
        """Rows that are sent."""
        return self._unsent.sent

    def drop(self, page: Sequence[bytes]) -> None:
        """Forget the page that `page` returned: it is sent."""
        with self._lock:
            sent, texts = self._unsent
            self._unsent = _Unsent(sent + len(page), texts[len(page) :])

    def take_turn(self, turn: Turn) -> bool:
        """Whether ``turn`` may send; then no other may until it ends or is garbage."""
        with self._lock:
            holder = self._turn() if self._turn else None
            if holder is None:
                self._turn = ref(turn)
            return holder in (None, turn)

    def end_turn(self, turn: Turn) -> None:
        """Let another send, if it was the turn of ``turn``."""
        with self._lock:
            if self._turn and self._turn() is turn:
                self._turn = None


def _too_large(page_rows: int, number: int) -> SubmissionError:
    problem = f"{page_rows} rows have over {MAX_PAGE_BYTES:,} bytes or {MAX_PAGE_VALUES:,} values as JSON"
    remedy = "Shorten the rows, or give them all to Client.submit, which makes smaller pages of long rows."
    return SubmissionError(FIELD, f"row {number}", problem, remedy, row=number)


class RowSender:
    """Accepts the rows of an open run and sends them in pages, in steps for a thread or a task. Accepted rows
    stay until they are sent: steps that fail, time out or are abandoned lose and repeat nothing, and the next
    steps go on.
    """

    def __init__(
        self,
        deployment: Deployment,
        spec: RunSpec,
        closer: RunCloser,
        check: FirstRows | None,
        most_ahead: int,
    ) -> None:
        """``check`` sees the first rows before they are sent; ``most_ahead`` rows wait in Redis at most."""
        self._deployment, self._spec, self._closer = deployment, spec, closer
        self._check, self._most_ahead = check, most_ahead
        self._ref = RunRef(spec.team, spec.run)
        row_bytes = deployment.settings.scheduler.limits.row_bytes
        self._unsent = UnsentRows(spec.page_rows, row_bytes)
        self._sent = SentPages(deployment.outbox, self._ref, spec.page_rows)
        self._closed = self._cancelled = False

    @property
    def accepted(self) -> int:
        """Rows that were accepted so far."""
        return self._unsent.accepted

    def accept(self, row: dict[str, Any], number: int) -> bool:
        """Take a row, the ``number``-th of its source; whether `sending` has something to do.

        Raises `SubmissionError` for what is no row, and `RunEnded` once the rows have ended.
        """
        if not self._unsent.add(row, number):
            raise RunEnded(self._ref.run, str(self._unsent.ended))
        return self._due

    @property
    def _due(self) -> bool:
        return self._unsent.full > 0 or (self._check is not None and self._unsent.accepted >= FIRST_ROWS)

    def sending(self) -> Steps[None]:
        """The steps that try the first rows and send full pages; returns at once while another does both."""
        turn = Turn()
        while self._due:
            try:
                if self._unsent.take_turn(turn):
                    yield from self._send_all()
                    continue
            finally:
                self._unsent.end_turn(turn)
            if self._unsent.full < UNSENT_PAGES:
                return
            yield Wait(TURN_S)

    def closing(self) -> Steps[None]:
        """The steps that send the remaining rows and close the run. Further calls do nothing."""
        turn = Turn()
        self._unsent.end()
        try:
            while not self._unsent.take_turn(turn):
                yield Wait(TURN_S)
            if self._closed:
                return
            yield from self._send_all()
            with self._deployment.answering():
                self._sent.restore(self._handed_rows().first)
                self._closer.close(self._unsent.accepted)
            self._closed = True
        finally:
            self._unsent.end_turn(turn)

    def abandon(self, error: BaseException) -> None:
        """End the rows and cancel the run, once. If cancelling fails, a note on ``error`` says so."""
        self._unsent.end(RunState.CANCELLED)
        if self._cancelled:
            return
        try:
            with self._deployment.answering():
                self._deployment.outbox.cancel(self._ref)
            self._cancelled = True
        except FairlaneError as failed:
            error.add_note(f"run {self._ref.run} could not be cancelled: {failed}")

    def _send_all(self) -> Steps[None]:
        """Try the first rows, and send all full pages. The caller holds the turn."""
        self._require_not_abandoned()
        self._try_first()
        while self._unsent.full:
            number, page = self._unsent.page()
            with self._deployment.answering():
                yield from self._waiting_for_room()
                self._sent.send(number, encode_texts(page))
                self._deployment.outbox.extend(self._ref, self._unsent.sent + len(page), last=False)
            self._unsent.drop(page)

    def _require_not_abandoned(self) -> None:
        if self._unsent.ended not in (None, CLOSED):
            raise RunEnded(self._ref.run, str(self._unsent.ended))

    def _try_first(self) -> None:
        """Check the first rows, once. Cancels the run and raises `SubmissionError` if they do not suit."""
        if self._check is None or not self._unsent.accepted:
            return
        try:
            with self._deployment.answering():
                self._check(self._unsent.first(FIRST_ROWS))
        except SubmissionError as error:
            self.abandon(error)
            raise
        self._check = None

    def _handed_rows(self) -> HandedRows:
        return self._deployment.runs.handed_rows(self._ref, self._spec, self._sent.handed)

    def _waiting_for_room(self) -> Steps[None]:
        pace, patience = Pace(), self._deployment.patience()
        watch = SubmissionWatch(self._deployment, self._ref)
        while True:
            handed = yield from patience.until_answered(self._handed_rows)
            status = yield from patience.until_answered(
                lambda: self._deployment.runs.status(self._ref, self._spec)
            )
            if status.state.finished:
                raise RunEnded(self._ref.run, status.state)
            if status.state is RunState.SUBMITTED:
                watch.check()
            waiting, kept = self._unsent.sent - handed.total, self._unsent.sent - handed.first
            if waiting < self._most_ahead and kept < KEPT_AHEAD * self._most_ahead:
                self._sent.restore(handed.first)
                return
            yield Wait(pace.next_s())

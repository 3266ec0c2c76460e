"""Reads one reply into an `Answer`, whole or streamed, as far as it arrives."""

import asyncio
from contextlib import aclosing, suppress

import httpx

from fairlane_workers.providers.answers.answer import Answer, UnreadableError, parse_object
from fairlane_workers.providers.answers.base_resp import named
from fairlane_workers.providers.answers.pieces import MaskedPieces
from fairlane_workers.providers.answers.quotes import page_named, quoted
from fairlane_workers.providers.contract import Deadline
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.framing.event import ERROR, StreamEvent
from fairlane_workers.providers.framing.form import BodyParser
from fairlane_workers.transport import Reply, TooLargeError, TransportError

DRAIN_S = 0.25  # for a server to close a stream after its end mark, so that the connection can be reused
END_S = 2.0
"""The time for the end mark after finish reason and usage, which servers send at the same moment. Some never
send it, and leave the connection open."""

USAGE_S = 10.0
"""The time for the usage after a finish reason: a gateway may count the tokens by itself. The answer is
complete without it."""


class ReplyReader:
    """Fills in an answer and passes its text on in ``pieces``; faults go to `Answer.problem`."""

    def __init__(self, dialect: Dialect, answer: Answer, pieces: MaskedPieces | None) -> None:
        self._dialect, self._answer, self._pieces = dialect, answer, pieces

    async def read(self, reply: Reply, max_bytes: int, deadline: Deadline, *, stream: bool) -> None:
        """Read one document, or events until the protocol's end mark. ``stream``: events were asked for.

        After the end mark it waits briefly for the server to end its reply, and after a finish reason for the
        end mark; ``deadline`` comes sooner then. A document's text is one chunk, unless the answer is still
        pending.
        """
        answer, content_type = self._answer, reply.headers.get("content-type", "")
        latest = deadline.when()
        events = self._dialect.events() if self._dialect.streams else None
        body = BodyParser(events, content_type, asked=stream)
        try:
            async with aclosing(reply.chunks(max_bytes)) as chunks:
                async for chunk in chunks:
                    if answer.ended:  # only a connection that is read to its end is used again
                        continue
                    arrived = body.feed(chunk)
                    await self._take(arrived)
                    if answer.error:
                        return
                    if arrived and (left_s := _left_s(answer)) is not None:
                        _shorten_deadline(deadline, left_s, latest)
            await self._take(body.finish())
        except TooLargeError as fault:
            answer.too_large = str(fault)
        except TransportError as fault:
            answer.problem = f"the answer could not be read to its end: {fault}"
        except UnreadableError as problem:
            answer.problem = str(problem)
        else:
            if body.document is not None:
                await self._take_document(body.document, content_type)
            elif body.stray and not answer.complete:
                answer.problem = f"not JSON: {quoted(body.stray)}"

    async def _take(self, events: list[StreamEvent]) -> None:
        """Add events that arrived together, and pass their text on as one chunk."""
        answer, texts = self._answer, list[str]()
        for event in events:
            if answer.ended or answer.error:
                break
            if event.name == ERROR:
                self._take_error(event)
            else:
                texts.append(self._dialect.fold(event, answer))
        if self._pieces and (text := "".join(texts)):
            await self._pieces(text)

    def _take_error(self, event: StreamEvent) -> None:
        """Note an error event: what the protocol reads in it, else all of its data."""
        answer = self._answer
        with suppress(UnreadableError):
            self._dialect.fold(event, answer)
        if not (answer.error or answer.ended):
            answer.fail(_words_of(event) or "an error event without words")

    async def _take_document(self, body: bytes, content_type: str) -> None:
        answer = self._answer
        try:
            document = self._dialect.document(body)
        except UnreadableError as problem:
            self._refuse(body, page_named(body, content_type) or str(problem))
            return
        try:
            self._dialect.read(document, answer)
        except UnreadableError as problem:
            self._refuse(body, str(problem) if answer.parts else f"{problem} in {quoted(body)}")
            return
        if self._pieces and answer.text and answer.pending is None and not answer.error:
            await self._pieces.whole(answer.text)

    def _refuse(self, body: bytes, problem: str) -> None:
        """Note the error that stands in place of an answer, or else the problem."""
        error = ErrorBody.in_place_of_answer(body)
        self._answer.error, self._answer.problem = (named(error), None) if error else (None, problem)


async def read_body(reply: Reply, max_bytes: int) -> tuple[bytes, TransportError | None]:
    """The body as far as it arrived, and the fault that cut it, if any."""
    parts: list[bytes] = []
    try:
        async with aclosing(reply.chunks(max_bytes)) as chunks:
            async for chunk in chunks:
                parts.append(chunk)
    except TransportError as fault:
        return b"".join(parts), fault
    return b"".join(parts), None


def plain(headers: httpx.Headers) -> dict[str, str]:
    """The headers by lower-case name: a lookup in `httpx.Headers` walks all of them."""
    raw = headers.raw
    by_name = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
    return by_name if len(by_name) == len(raw) else dict(headers.items())


def _words_of(event: StreamEvent) -> object:
    try:
        return parse_object(event.data)
    except UnreadableError:
        return event.data


def _left_s(answer: Answer) -> float | None:
    """How long the rest of a stream may take, from its last event on; ``None``: as long as the call may.

    A gateway that runs the model's tools by itself continues after their finish reason.
    """
    if answer.ended:
        return DRAIN_S
    if answer.finish_reason is None or answer.tools or answer.drafts:
        return None
    return USAGE_S if answer.output_tokens is None else END_S


def _shorten_deadline(deadline: Deadline, left_s: float, latest: float | None) -> None:
    """Move the deadline to the time that is left from now, but not beyond the latest: the answer is complete,
    and only the end of the stream is missing.
    """
    soon = asyncio.get_running_loop().time() + left_s
    deadline.reschedule(soon if latest is None else min(soon, latest))

"""Reads one reply into an `Answer`, whole or streamed, as far as it arrives."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import httpx

from fairlane_workers.providers.answers.answer import Answer, UnreadableError
from fairlane_workers.providers.answers.pieces import MaskedPieces
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.transport import Reply, TransportError

DRAIN_S = 0.25  # for a server to close a stream after its end mark, so that the connection can be reused


class ReplyReader:
    """Fills in an answer and passes its text on in ``pieces``; faults go to `Answer.problem`."""

    def __init__(self, dialect: Dialect, answer: Answer, pieces: MaskedPieces | None) -> None:
        self._dialect, self._answer, self._pieces = dialect, answer, pieces

    async def read_whole(self, reply: Reply, max_bytes: int) -> None:
        """Read one document; its text is one chunk, unless the answer is still pending."""
        answer = self._answer
        body, answer.problem = await read_body(reply, max_bytes)
        if answer.problem:
            return
        try:
            self._dialect.read(self._dialect.document(body), answer)
        except UnreadableError as problem:
            answer.error = ErrorBody.in_place_of_answer(body)
            answer.problem = None if answer.error else str(problem)
            return
        if self._pieces and answer.text and answer.pending is None:
            await self._pieces.whole(answer.text)

    async def read_stream(self, reply: Reply, max_bytes: int, deadline: asyncio.Timeout) -> None:
        """Read events until the protocol's end mark; then wait briefly for the server to end its reply."""
        answer, parser = self._answer, self._dialect.events()
        try:
            async with aclosing(reply.chunks(max_bytes)) as chunks:
                async for chunk in chunks:
                    if (
                        answer.ended
                    ):  # the answer is complete, but only a connection read to its end is reused
                        continue
                    await self._take(parser.feed(chunk))
                    if answer.error:
                        return
                    if answer.ended:
                        _hurry(deadline)
            await self._take(parser.finish())
        except TransportError as fault:
            answer.problem = f"the answer could not be read to its end: {fault}"
        except UnreadableError as problem:
            answer.problem = str(problem)

    async def _take(self, events: list[StreamEvent]) -> None:
        """Add events that arrived together, and pass their text on as one chunk."""
        answer, texts = self._answer, list[str]()
        for event in events:
            if answer.ended or answer.error:
                break
            texts.append(self._dialect.fold(event, answer))
        if self._pieces and (text := "".join(texts)):
            await self._pieces(text)


async def read_body(reply: Reply, max_bytes: int) -> tuple[bytes, str | None]:
    """The body as far as it arrived, and the fault that cut it, if any."""
    parts: list[bytes] = []
    try:
        async with aclosing(reply.chunks(max_bytes)) as chunks:
            async for chunk in chunks:
                parts.append(chunk)
    except TransportError as fault:
        return b"".join(parts), f"the answer could not be read to its end: {fault}"
    return b"".join(parts), None


def plain(headers: httpx.Headers) -> dict[str, str]:
    """The headers by lower-case name: a lookup in `httpx.Headers` walks all of them."""
    raw = headers.raw
    by_name = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
    return by_name if len(by_name) == len(raw) else dict(headers.items())


def is_event_stream(reply: Reply) -> bool:
    """Whether the reply is a stream; some servers answer ``stream: true`` with one JSON document."""
    return not reply.headers.get("content-type", "").startswith("application/json")


def _hurry(deadline: asyncio.Timeout) -> None:
    """Shorten the deadline: the answer is complete, and the server only has to close the stream."""
    soon = asyncio.get_running_loop().time() + DRAIN_S
    if (when := deadline.when()) is None or soon < when:
        deadline.reschedule(soon)

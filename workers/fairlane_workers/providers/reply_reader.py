"""Reads one reply into an `Answer`: whole or streamed, as far as it comes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import httpx

from fairlane_workers.providers.answer import Answer, UnreadableError
from fairlane_workers.providers.contract import OnChunk
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.transport import Reply, TransportError

DRAIN_S = 0.25


class ReplyReader:
    """Reads by the dialect, fills in the answer, and passes text on. What goes wrong is `Answer.problem`."""

    def __init__(self, dialect: Dialect, answer: Answer, on_chunk: OnChunk | None) -> None:
        self._dialect, self._answer, self._on_chunk = dialect, answer, on_chunk

    async def read_whole(self, reply: Reply, max_bytes: int) -> None:
        """One document; its text is one chunk, unless more of it is still being made."""
        answer = self._answer
        body, answer.problem = await read_body(reply, max_bytes)
        if answer.problem:
            return
        try:
            self._dialect.read(self._dialect.document(body), answer)
        except UnreadableError as problem:
            answer.problem = str(problem)
            return
        if self._on_chunk and answer.text and answer.pending is None:
            await self._on_chunk(answer.text)

    async def read_stream(self, reply: Reply, max_bytes: int, deadline: asyncio.Timeout) -> None:
        """Events until the protocol's end mark; then a moment for the server to end its reply."""
        answer, parser = self._answer, self._dialect.events()
        try:
            async with aclosing(reply.chunks(max_bytes)) as chunks:
                async for chunk in chunks:
                    if answer.ended:  # nothing more is meant for us, but a connection read to its end is kept
                        continue
                    await self._hear(parser.feed(chunk))
                    if answer.error:
                        return
                    if answer.ended:
                        _hurry(deadline)
            await self._hear(parser.finish())
        except TransportError as fault:
            answer.problem = f"the answer could not be read to its end: {fault}"
        except UnreadableError as problem:
            answer.problem = str(problem)

    async def _hear(self, events: list[StreamEvent]) -> None:
        """Add what arrived together, and tell the listener once."""
        answer, texts = self._answer, list[str]()
        for event in events:
            if answer.ended or answer.error:
                break
            texts.append(self._dialect.fold(event, answer))
        if self._on_chunk and (text := "".join(texts)):
            await self._on_chunk(text)


async def read_body(reply: Reply, max_bytes: int) -> tuple[bytes, str | None]:
    """The body as far as it can be had, and what broke it off if something did."""
    parts: list[bytes] = []
    try:
        async with aclosing(reply.chunks(max_bytes)) as chunks:
            async for chunk in chunks:
                parts.append(chunk)
    except TransportError as fault:
        return b"".join(parts), f"the answer could not be read to its end: {fault}"
    return b"".join(parts), None


def plain(headers: httpx.Headers) -> dict[str, str]:
    """The headers by lower-case name: `httpx.Headers` walks all of them whenever one is asked for."""
    raw = headers.raw
    by_name = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
    return by_name if len(by_name) == len(raw) else dict(headers.items())


def is_event_stream(reply: Reply) -> bool:
    """Whether events come; some servers answer ``stream: true`` with one JSON document."""
    return not reply.headers.get("content-type", "").startswith("application/json")


def _hurry(deadline: asyncio.Timeout) -> None:
    """Leave the server a moment to close a stream whose end mark was read, and not the whole deadline."""
    soon = asyncio.get_running_loop().time() + DRAIN_S
    if (when := deadline.when()) is None or soon < when:
        deadline.reschedule(soon)

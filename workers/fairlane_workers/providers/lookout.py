"""Waits for an answer that its provider is still making: asks for it again and again, ever less often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fairlane.clock import Clock
from fairlane_workers.pause import Pause
from fairlane_workers.providers.answer import Answer, UnreadableError
from fairlane_workers.providers.contract import OnChunk, Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.reply_reader import plain, read_body
from fairlane_workers.providers.retry_after import retry_after_ms
from fairlane_workers.transport import Reply, TransportError

SLOWER = 1.5
MOST_S = 5.0
"""Each pause is so many times the one before, up to this many seconds."""

CUT_AT_MOST = 3
"""Answers in a row that break off before their end, until the last one counts. They may be too large."""

_LATER = frozenset({408, 425, 429})


@dataclass(slots=True)
class Calling:
    """One call while it is made: its latest reply, and what has been read of it.

    ``handle`` names it to the provider once that has begun it and goes on by itself.
    """

    dialect: Dialect
    request: Request
    on_chunk: OnChunk | None
    reply: Reply | None = None
    answer: Answer = field(default_factory=Answer)
    handle: str | None = None
    heard: str = ""
    """What the listener has been told of the answer while it was made."""


class Lookout:
    """One for all calls of a provider. ``get`` asks for a target and returns once there are headers."""

    def __init__(self, get: Callable[[str], Awaitable[Reply]], clock: Clock, pause: Pause) -> None:
        self._get, self._clock, self._pause = get, clock, pause

    async def follow(self, call: Calling) -> Reply:
        """Look until the answer is there, and has been read into ``call``.

        Returns the reply that brought it, or the one, unread, that refuses it. What may pass (a busy server,
        a lost connection) is waited out: time is the caller's. The ``handle`` is told to ``on_pending`` once
        it is known to be waited for.
        """
        noted, cut = False, 0
        wait_s = 0.0
        while True:
            pending = call.answer.pending
            if pending is not None and not noted:
                noted, wait_s = True, pending.after_s
                if call.request.on_pending is not None:
                    await call.request.on_pending(pending.handle)
            if wait_s:
                await self._pause(wait_s)
            wait_s = min(wait_s * SLOWER or 1.0, MOST_S)
            reply = await self._look(call)
            if reply is None:
                continue
            if reply.status in _LATER or reply.status >= 500:
                wait_s = max(wait_s, self._asked_to_wait_s(reply))
                await reply.aclose()
                continue
            call.reply = reply
            if not 200 <= reply.status < 300:
                return reply
            problem = await self._read(call, reply)
            cut = cut + 1 if problem else 0
            if cut == CUT_AT_MOST:
                call.answer = Answer(problem=problem)
            if cut == CUT_AT_MOST or (not cut and call.answer.pending is None):
                return reply

    async def _look(self, call: Calling) -> Reply | None:
        """The reply; ``None`` where the network had none."""
        try:
            return await self._get(call.dialect.look(call.handle or ""))
        except TransportError:
            return None

    async def _read(self, call: Calling, reply: Reply) -> str | None:
        """Read a reply into ``call``; says where it broke off, if it did, and leaves ``call`` as it was."""
        try:
            body, problem = await read_body(reply, call.request.max_response_bytes)
        finally:
            await reply.aclose()
        if problem is not None:
            return problem
        answer = call.answer = Answer()
        try:
            call.dialect.read(call.dialect.document(body), answer)
        except UnreadableError as unreadable:
            answer.pending, answer.problem = None, str(unreadable)
        await _tell(call)
        return None

    def _asked_to_wait_s(self, reply: Reply) -> float:
        return (retry_after_ms(plain(reply.headers), self._clock.now_ms()) or 0) / 1000


async def _tell(call: Calling) -> None:
    """Pass on what is new of the text. Where the provider has changed what it said, nothing is."""
    text = call.answer.text or ""
    if call.on_chunk is not None and len(text) > len(call.heard) and text.startswith(call.heard):
        new, call.heard = text[len(call.heard) :], text
        await call.on_chunk(new)

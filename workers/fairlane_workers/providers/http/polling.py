"""Polls a provider for an answer that it is still making, at growing intervals."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fairlane.core.clock import Clock
from fairlane_workers.providers.answers.answer import Answer, UnreadableError
from fairlane_workers.providers.answers.pieces import MaskedPieces
from fairlane_workers.providers.contract import Deadline, Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.errors.retry_after import retry_after_ms
from fairlane_workers.providers.http.reply_reader import plain, read_body
from fairlane_workers.transport import Reply, TooLargeError, TransportError
from fairlane_workers.transport.pause import Pause

GROWTH = 1.5
MOST_PAUSE_S = 5.0
"""Each pause is ``GROWTH`` times the one before, at most ``MOST_PAUSE_S``. So a short answer is soon noticed,
and a long one costs twelve polls a minute."""

LAST_LOOK_S = 0.5
"""Time for the last poll before the deadline, at most a quarter of the call's timeout: a finished answer is
paid, however late in a pause it comes."""

LEAST_PAUSE_S = 0.01
"""Between two polls; a poll takes longer."""

MOST_CUT = 3
"""After so many answers in a row that break off, the last one counts: they may be too large."""

_LATER = frozenset({408, 425, 429})


@dataclass(slots=True)
class CallInProgress:
    """One call: its latest reply, and the answer as far as it is read.

    ``mark``: the number of the credential that its latest request carried. ``handle``: id of the call at its
    provider, once the provider works on it by itself.
    """

    dialect: Dialect
    request: Request
    pieces: MaskedPieces | None
    reply: Reply | None = None
    answer: Answer = field(default_factory=Answer)
    handle: str | None = None
    mark: int = 0
    delivered: str = ""
    """The text that ``pieces`` has received."""


class AnswerPoller:
    """Polls for all calls of a provider. ``get`` requests a target and returns once the headers arrive."""

    def __init__(
        self, get: Callable[[CallInProgress, str], Awaitable[Reply]], clock: Clock, pause: Pause
    ) -> None:
        self._get, self._clock, self._pause = get, clock, pause

    async def follow(self, call: CallInProgress, deadline: Deadline) -> Reply:
        """Poll until the answer is complete and read into ``call``.

        Returns the reply that brought the answer, or an unread reply with an error. Polling continues after a
        fault that may pass (a busy server, a lost connection) until the caller's ``deadline``, and polls once
        shortly before it. ``on_pending`` gets the ``handle`` before the first pause.
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
                await self._pause(_at_most_until_last_look(wait_s, call.request.timeout_s, deadline.when()))
            wait_s = min(wait_s * GROWTH or 1.0, MOST_PAUSE_S)
            try:
                reply = await self._get(call, call.dialect.look(call.handle or ""))
            except TransportError:
                continue
            if reply.status in _LATER or reply.status >= 500:
                asked_ms = retry_after_ms(plain(reply.headers), self._clock.now_ms()) or 0
                wait_s = max(wait_s, asked_ms / 1000)
                await reply.aclose()
                continue
            call.reply = reply
            if not 200 <= reply.status < 300:
                return reply
            problem = await self._read(call, reply)
            cut = cut + 1 if problem else 0
            if cut == MOST_CUT:
                call.answer = Answer(problem=problem)
            if cut == MOST_CUT or (not cut and call.answer.pending is None):
                return reply

    async def _read(self, call: CallInProgress, reply: Reply) -> str | None:
        """Read a reply into ``call``. Returns where it broke off, if it did, and then leaves ``call``
        unchanged.
        """
        try:
            body, fault = await read_body(reply, call.request.max_response_bytes)
        finally:
            await reply.aclose()
        if isinstance(fault, TooLargeError):
            call.answer = Answer(too_large=str(fault))
            return None
        if fault is not None:
            return f"the answer could not be read to its end: {fault}"
        answer = call.answer = Answer()
        try:
            call.dialect.read(call.dialect.document(body), answer)
        except UnreadableError as unreadable:
            answer.pending, answer.problem = None, str(unreadable)
        await _deliver(call)
        return None


def _at_most_until_last_look(wait_s: float, timeout_s: float, deadline_s: float | None) -> float:
    """A pause in seconds that does not reach beyond the moment of the last poll, unless that is over."""
    now_s = asyncio.get_running_loop().time()
    left_s = (deadline_s or now_s) - now_s - min(LAST_LOOK_S, timeout_s / 4)
    return min(wait_s, left_s) if left_s > LEAST_PAUSE_S else wait_s


async def _deliver(call: CallInProgress) -> None:
    """Pass new text to the listener; nothing if the provider has changed earlier text."""
    text = call.answer.text or ""
    if call.pieces is not None and len(text) > len(call.delivered) and text.startswith(call.delivered):
        new, call.delivered = text[len(call.delivered) :], text
        await call.pieces(new)

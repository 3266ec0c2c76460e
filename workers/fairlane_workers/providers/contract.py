"""The interface of a provider: it takes a request and returns an outcome, never an exception."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from fairlane.model.outcome import Outcome

OnChunk: TypeAlias = Callable[[str], Awaitable[None]]
OnPending: TypeAlias = Callable[[str], Awaitable[None]]

MOST_LATE_S = 1.0
"""A process reads within this time what arrived while it stood still."""


@dataclass(frozen=True, slots=True)
class Request:
    """One rendered call, ready to send.

    ``messages`` are ``{"role", "content"}``; a function takes ``arguments`` instead. ``params`` are sent
    unchanged if the provider has them by that name, else translated from OpenAI's vocabulary
    (`providers.parameters`). ``inputs`` are texts to embed, instead of messages. ``lane`` is the call's lane.
    ``timeout_s`` bounds the whole call, from the first byte sent to the last byte read, and also the time
    until it can be sent. ``max_response_bytes`` bounds how much of the answer is read.

    Some providers begin a call and are polled for its answer. Such a call passes its ``handle`` to
    ``on_pending`` before the first pause. A request with a ``handle`` resumes that call, and begins a new one
    only if the provider does not know it. If a call is cancelled and ``withdrawn()`` is true, no later
    attempt needs the answer, and the call is cancelled at the provider, too.

    ``optional`` names parameters that may be left out if the model does not support them, besides sampling
    parameters. ``"stream"`` among them: nobody asked for a stream.

    A provider calls ``leave`` right before it sends the first byte; it may raise `PermitExpiredError`.
    """

    model: str
    messages: list[dict[str, Any]]
    params: dict[str, Any]
    stream: bool
    timeout_s: float
    max_response_bytes: int
    arguments: Mapping[str, Any] | None = None
    lane: str = ""
    inputs: tuple[str, ...] | None = None
    handle: str | None = None
    on_pending: OnPending | None = None
    withdrawn: Callable[[], bool] = bool
    leave: Callable[[], object] = bool
    optional: frozenset[str] = frozenset()


class Deadline:
    """Ends a block after ``seconds``, as `asyncio.timeout` does, whose other methods it has.

    An event loop that stood still runs its timers before it reads what arrived meanwhile. So where the
    deadline passed during a standstill, the block gets as long again, at most `MOST_LATE_S`.
    """

    def __init__(self, seconds: float) -> None:
        self._loop, self._timeout = asyncio.get_running_loop(), asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None
        self.reschedule(self._loop.time() + seconds)

    def when(self) -> float | None:
        """When it ends the block, by the loop's clock in seconds; ``None``: never."""
        return None if self._timer is None else self._timer.when()

    def reschedule(self, when: float | None) -> None:
        """Move it, unless it has ended the block."""
        if self._timer is not None:
            self._timer.cancel()
        if self._timeout.when() is not None and not self.expired():
            self._timeout.reschedule(None)
        self._timer = None if when is None else self._loop.call_at(when, self._pass, when)

    def expired(self) -> bool:
        """Whether it has ended the block."""
        return self._timeout.expired()

    def _pass(self, when: float) -> None:
        now = self._loop.time()
        if not self.expired():
            self._timeout.reschedule(now + min(now - when, MOST_LATE_S))

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.reschedule(None)
        await self._timeout.__aexit__(kind, error, traceback)


class Provider(Protocol):
    """Calls one provider. One instance serves all calls of a connection, on one event loop."""

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        """Make one call, send it at most once, and return its outcome.

        Every fault of the provider or the network becomes an `Outcome`. Only cancellation and exceptions of
        ``on_chunk`` and of ``request.leave`` pass through. ``on_chunk`` receives the text as it arrives if
        the call streams; a whole answer arrives as one chunk. Its time counts towards the deadline.
        """
        ...

    async def prepare(self) -> None:
        """Load what the first call needs, before the worker reports itself ready. It calls nobody."""
        ...

    async def aclose(self) -> None:
        """Close all connections. Later calls end as `NetworkFailure`."""
        ...

"""What the worker asks of a provider, and what every provider answers: an outcome, never an exception."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from fairlane.job import Outcome

OnChunk: TypeAlias = Callable[[str], Awaitable[None]]
OnPending: TypeAlias = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Request:
    """One LLM call, rendered and ready to be sent.

    ``messages`` are ``{"role", "content"}``; a function takes ``arguments`` instead. ``params`` go to the
    provider as they are where it knows them by that name, else translated from OpenAI's vocabulary
    (`providers.parameters`). ``inputs`` are texts to embed, instead of messages. ``lane`` is the one that the
    call was admitted on.
    ``timeout_s`` bounds the whole call from the first byte sent to the last byte read;
    ``max_response_bytes`` bounds what is read of the answer.

    Some providers only begin a call and are asked for its answer later. Such a call tells ``on_pending`` the
    ``handle`` that names it, once it is known that the answer takes time. A request with a ``handle`` goes on
    with that call, and begins one only where the provider does not know it. Where a call is cancelled and
    ``withdrawn()`` says that nobody will ask for it again, the provider is told so.
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


class Provider(Protocol):
    """A way to one provider. One instance serves all calls of a connection, on one event loop."""

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        """Make one call, send it at most once, and say how it ended.

        Whatever the provider or the network does becomes an `Outcome`. Only cancellation passes through,
        and what ``on_chunk`` itself raises. ``on_chunk`` receives the text as it arrives when the call
        streams; a whole answer arrives as one chunk. The time it takes counts towards the deadline.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections that calls were made over. Calls afterwards end as `NetworkFailure`."""
        ...

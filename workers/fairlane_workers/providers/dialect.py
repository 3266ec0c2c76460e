"""What tells one protocol from another: where to post, what to post, and how to read the reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fairlane_workers.providers.answer import Answer, UnreadableError, parse_object
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.error_body import ErrorBody
from fairlane_workers.providers.framing.event import EventParser, StreamEvent
from fairlane_workers.providers.framing.sse import SseParser


class UnmappableError(ValueError):
    """The protocol cannot say what a run asks for; the text names it. Never leaves this package."""


class Dialect(ABC):
    """One protocol. Stateless: all state of a call is in its `Answer`. What most have in common is here."""

    protocol: ClassVar[str]
    """Its name in the settings."""

    method: str = "POST"
    streams: bool = True
    """Whether a reply may come in events."""

    late_statuses: ClassVar[Mapping[str, int]] = {}
    """The HTTP status that an error's kind (lower case) stands for, for errors that come after a 200."""

    def headers(self) -> dict[str, str]:
        """The headers that this protocol asks for, credentials apart; made once per connection."""
        return {}

    @abstractmethod
    def target(self, request: Request) -> str:
        """What follows the connection's base URL: a path, and a query where it needs one. Percent-encoded."""

    @abstractmethod
    def body(self, request: Request) -> Any:
        """The JSON body of a request; ``None`` for none. Raises `UnmappableError`."""

    def document(self, body: bytes) -> Any:
        """A whole reply's JSON, as `read` takes it. Raises `UnreadableError` where it is not even that."""
        return parse_object(body)

    @abstractmethod
    def read(self, document: Any, answer: Answer) -> None:
        """Fill in ``answer`` from a whole reply, or say in ``answer.pending`` where to look for it later.

        Raises `UnreadableError` where the schema is violated.
        """

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        """Add one streamed event to ``answer``; returns its new text. Raises `UnreadableError`."""
        raise UnreadableError(f"{self.protocol} does not stream")

    def events(self) -> EventParser:
        """What cuts one streamed reply into events."""
        return SseParser()

    def error(self, headers: Mapping[str, str], body: bytes) -> ErrorBody:
        """What a refusal says of itself. ``headers`` are looked up in lower case."""
        return ErrorBody.parse(body)

    def look(self, handle: str) -> str:
        """Where to ask (GET) for what `Answer.pending` named; the same form as `target`.

        Raises `UnreadableError` for a handle that is none of this protocol's.
        """
        raise UnreadableError(f"{self.protocol} answers at once")

    def cancel(self, handle: str) -> str | None:
        """Where to POST that nobody waits for it any more; ``None`` where there is no such place."""
        return None

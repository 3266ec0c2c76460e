"""The base of every protocol: where to send a request, what to send, and how to read the reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fairlane.config.connections.connection import Connection
from fairlane_workers.providers.answers.answer import Answer, UnreadableError, parse_object
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.framing.event import EventParser, StreamEvent
from fairlane_workers.providers.framing.sse import SseParser
from fairlane_workers.providers.limits.table import LimitDialect


class UnmappableError(ValueError):
    """The protocol cannot express a run's request; the text names the part. Never leaves this package."""


class Dialect(ABC):
    """One protocol, with defaults that most share. Stateless: all state of a call is in its `Answer`."""

    protocol: ClassVar[str]
    """Its name in the settings."""

    path: ClassVar[str] = ""
    """Where every request goes, below the connection's base URL; else the protocol has its own `target`."""

    embeddings: ClassVar[type[Dialect] | None] = None
    """The dialect that embeds texts over the same connection; ``None`` if the protocol has none."""

    method: str = "POST"
    streams: bool = True
    """Whether a reply may be a stream of events."""

    limits: ClassVar[LimitDialect | None] = None
    """The headers that report the provider's limits, of a protocol that is not Fairlane's own."""

    late_statuses: ClassVar[Mapping[str, int]] = {}
    """The HTTP status of each error type or code (lower case), for errors that arrive after a 200."""

    @classmethod
    def of(cls, connection: Connection) -> Dialect:
        """The dialect of one connection. Raises `ConfigurationError` if it lacks what the protocol needs."""
        return cls()

    @classmethod
    def embeddings_of(cls, connection: Connection) -> Dialect | None:
        """The dialect `embeddings` of one connection."""
        return None if cls.embeddings is None else cls.embeddings.of(connection)

    def headers(self) -> dict[str, str]:
        """The headers that this protocol needs, without credentials; made once per connection."""
        return {}

    def target(self, request: Request) -> str:
        """The path, and a query if needed, below the connection's base URL. Percent-encoded."""
        return self.path

    @abstractmethod
    def body(self, request: Request) -> Any:
        """The JSON body of a request; ``None`` for none. Raises `UnmappableError`."""

    def document(self, body: bytes) -> Any:
        """A whole reply as JSON, for `read`. Raises `UnreadableError` for anything else."""
        return parse_object(body)

    @abstractmethod
    def read(self, document: Any, answer: Answer) -> None:
        """Fill in ``answer`` from a whole reply, or set ``answer.pending`` if the answer is still being made.

        Raises `UnreadableError` if the reply violates the schema.
        """

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        """Add one streamed event to ``answer``; returns its new text. Raises `UnreadableError`."""
        raise UnreadableError(f"{self.protocol} does not stream")

    def events(self) -> EventParser:
        """A parser for one streamed reply."""
        return SseParser()

    def error(self, headers: Mapping[str, str], body: bytes) -> ErrorBody:
        """The error in a reply that is not 2xx. ``headers`` have names in lower case."""
        return ErrorBody.parse(body)

    def look(self, handle: str) -> str:
        """Where to poll (GET) for the answer that `Answer.pending` named; the same form as `target`.

        Raises `UnreadableError` for a handle of another protocol.
        """
        raise UnreadableError(f"{self.protocol} answers at once")

    def cancel(self, handle: str) -> str | None:
        """Where to POST to cancel a pending call; ``None`` if the protocol cannot."""
        return None

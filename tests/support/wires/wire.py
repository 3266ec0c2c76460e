"""A protocol's answers as bytes on the wire, so that one suite covers all protocols."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from fairlane.model.outcome import Overloaded, ServerError
from tests.support.scripted_server import Received, event


@dataclass(frozen=True)
class Asked:
    """A request, decoded independently of its protocol. ``messages`` are pairs (role, text)."""

    model: str
    messages: list[tuple[str, str]]
    temperature: float | None
    max_tokens: int | None


class Wire(ABC):
    """One protocol's answers, built by hand. The defaults here hold for most protocols."""

    protocol: ClassVar[str]
    base: ClassVar[str] = "/v1"
    """The path of the connection's ``base_url``."""

    late_overload: ClassVar[type[Overloaded] | type[ServerError]] = Overloaded
    """The outcome of an overload that arrives inside a 200 answer. Protocols whose error carries only a
    sentence, and no type, cannot distinguish it: there it is a `ServerError`."""

    filter_reason: ClassVar[str | None]
    """The finish reason of an answer that a content filter stopped; ``None`` if there are no filters."""

    stop_reason: ClassVar[str]
    answers_as: ClassVar[str | None] = "m-1"
    """The model that an answer names; ``None`` where the protocol does not say."""
    key_header: ClassVar[str] = "authorization"
    streams: ClassVar[bool] = True
    """Whether the protocol streams. If not, a request for a stream gets a whole answer."""

    stream_type: ClassVar[str] = "text/event-stream"
    has_end: ClassVar[bool] = True
    """Whether a stream has an end mark besides the event with the finish reason."""

    has_end_event: ClassVar[bool] = True
    """Whether any event marks the end of a stream. If not, it ends with the response body."""

    broken: ClassVar[bytes] = b"data: {oops\n\n"
    """An event that cannot be read."""

    event_end: ClassVar[bytes] = b"\n\n"
    """The bytes that end an event; they may be missing after the last event."""

    comment: ClassVar[bytes] = b": keep-alive\n\n"
    """An event without content, to be ignored."""

    half_event: ClassVar[bytes] = b" "
    """The beginning of an event after which any number of spaces may follow."""

    distinguishes_quota: ClassVar[bool] = True
    """Whether errors distinguish a used-up quota from a rate limit."""

    def settings(self, url: str) -> dict[str, Any]:
        """A connection to a server at ``url``."""
        return {"protocol": self.protocol, "base_url": url + self.base}

    @abstractmethod
    def path(self, stream: bool = False) -> str:
        """The path and query of a call to the model ``m-1``."""

    @abstractmethod
    def asked(self, received: Received) -> Asked:
        """Decode a request."""

    @abstractmethod
    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        """A whole answer, with a usage of 7 input and 3 output tokens."""

    @abstractmethod
    def begin(self) -> bytes:
        """A stream's first event."""

    @abstractmethod
    def piece(self, text: str) -> bytes:
        """An event with text."""

    @abstractmethod
    def finish(self, reason: str | None = None) -> bytes:
        """The event with the finish reason, and with a usage of 7 and 3 tokens."""

    @abstractmethod
    def end(self) -> bytes:
        """The protocol's end mark; empty if it has none."""

    def without_text(self) -> bytes:
        """A complete stream without a text event."""
        return self.finish() + self.end()

    @abstractmethod
    def error(self, kind: str, message: str = "the provider's words") -> dict[str, Any]:
        """An error of this type."""

    def late_error(self, kind: str) -> bytes:
        """An error in mid-stream."""
        return event(self.error(kind), "error")

    overloaded: ClassVar[str] = "overloaded_error"
    """The type of an overload."""

    overloaded_status: ClassVar[int] = 529
    """How an error of this type is classified if it arrives in a 200 answer."""

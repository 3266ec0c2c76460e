"""What a protocol's answers look like on the wire, so that one suite covers all protocols."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.support.scripted_server import Received, event


@dataclass(frozen=True)
class Asked:
    """What a request said, whatever the protocol. ``messages`` are (role, text)."""

    model: str
    messages: list[tuple[str, str]]
    temperature: float | None
    max_tokens: int | None


class Wire(ABC):
    """One protocol's answers, built by hand. What most have in common is here."""

    protocol: ClassVar[str]
    base: ClassVar[str] = "/v1"
    """What follows a server's address in the connection's ``base_url``."""

    filter_reason: ClassVar[str | None]
    """Why an answer ends that a filter stopped; ``None`` where there are no filters."""

    stop_reason: ClassVar[str]
    key_header: ClassVar[str] = "authorization"
    streams: ClassVar[bool] = True
    """Whether it streams at all; what asks for that is answered whole otherwise."""

    stream_type: ClassVar[str] = "text/event-stream"
    has_end: ClassVar[bool] = True
    """Whether a stream's end is marked apart from its reason."""

    tells_its_end: ClassVar[bool] = True
    """Whether anything in a stream says that nothing follows; else it ends where its body does."""

    broken: ClassVar[bytes] = b"data: {oops\n\n"
    """An event that cannot be read."""

    event_end: ClassVar[bytes] = b"\n\n"
    """What ends an event, and may be missing from the last."""

    comment: ClassVar[bytes] = b": keep-alive\n\n"
    """What says nothing."""

    half_event: ClassVar[bytes] = b" "
    """What any number of spaces may follow."""

    tells_quota: ClassVar[bool] = True
    """Whether a quota that is used up is told from a rate."""

    def settings(self, url: str) -> dict[str, Any]:
        """A connection to a server at ``url``."""
        return {"protocol": self.protocol, "base_url": url + self.base}

    @abstractmethod
    def path(self, stream: bool = False) -> str:
        """Where a call to the model ``m-1`` goes, from the server's root on, with its query."""

    @abstractmethod
    def asked(self, received: Received) -> Asked:
        """What a request said."""

    @abstractmethod
    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        """A whole answer that used 7 input and 3 output tokens."""

    @abstractmethod
    def begin(self) -> bytes:
        """A stream's first event."""

    @abstractmethod
    def piece(self, text: str) -> bytes:
        """An event with text."""

    @abstractmethod
    def finish(self, reason: str | None = None) -> bytes:
        """The event that says why the text ends, with usage of 7 and 3 tokens."""

    @abstractmethod
    def end(self) -> bytes:
        """The protocol's end mark; nothing where it has none."""

    def without_text(self) -> bytes:
        """A stream that ends well and has no text, not even an empty one."""
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
    """What such an error counts as where it comes after a 200."""

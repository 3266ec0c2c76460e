"""One event of a streamed reply, and the interface of every parser."""

from typing import NamedTuple, Protocol

ERROR = "error"
"""The name of an event that is an error, whatever its data."""


class StreamEvent(NamedTuple):
    """One event: its name (``message`` if the format has none) and its data, a text."""

    name: str
    data: str


class EventParser(Protocol):
    """Splits a stream into events, however the network splits it. One instance reads one reply.

    Raises `UnreadableError` if the bytes violate the format.
    """

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """Take the next bytes; returns the events they complete, in order."""
        ...

    def finish(self) -> list[StreamEvent]:
        """End the stream; returns the events that its last bytes complete."""
        ...

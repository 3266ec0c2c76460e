"""One event of a streamed reply, whatever format cut it out, and what every cutter does."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class StreamEvent(NamedTuple):
    """One event: its name (``message`` where the format gave none) and its data, which is text."""

    name: str
    data: str


class EventParser(Protocol):
    """Cuts a stream into events. One instance reads one reply; the cuts of the network do not matter.

    Raises `UnreadableError` where the bytes break the format.
    """

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """Take the next bytes; returns the events they complete, in order."""
        ...

    def finish(self) -> list[StreamEvent]:
        """The stream is over; returns what its last bytes complete."""
        ...

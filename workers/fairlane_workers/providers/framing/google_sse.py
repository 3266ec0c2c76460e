"""Google's server-sent events, which an error may follow as bare JSON."""

from __future__ import annotations

from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.framing.sse import SseParser


class GoogleSseParser:
    """Reads events until a line begins with a brace or a bracket; from there on, JSON to the end.

    That JSON is the last event, named ``error``.
    """

    def __init__(self) -> None:
        self._events = SseParser()
        self._at_line = True  # whether the next byte begins a line
        self._bare: list[bytes] = []

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """Take the next bytes; returns the events they complete, in order."""
        if self._bare:
            self._bare.append(chunk)
            return []
        bare = self._begin_of_bare(chunk)
        if bare is not None:
            self._bare.append(chunk[bare:])
            chunk = chunk[:bare]
        return self._events.feed(chunk)

    def finish(self) -> list[StreamEvent]:
        """End the stream; returns the event that lacked its closing blank line, and the error."""
        events = self._events.finish()
        if self._bare:
            events.append(StreamEvent("error", b"".join(self._bare).decode("utf-8", "replace")))
        return events

    def _begin_of_bare(self, chunk: bytes) -> int | None:
        if self._at_line and chunk[:1] in (b"{", b"["):
            return 0
        if chunk:
            self._at_line = chunk.endswith((b"\n", b"\r"))
        lines = (chunk.find(b"\n{"), chunk.find(b"\n["))
        return min((at + 1 for at in lines if at >= 0), default=None)

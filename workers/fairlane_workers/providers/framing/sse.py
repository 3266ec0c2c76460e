"""Parses server-sent events from raw bytes."""

from __future__ import annotations

from fairlane_workers.providers.framing.event import StreamEvent

_BOM = b"\xef\xbb\xbf"


class SseParser:
    """Reads ``text/event-stream`` (WHATWG HTML, "Server-sent events") incrementally.

    The events do not depend on how the bytes are split over calls of ``feed``. Lines may end in LF, CRLF or
    CR. Comments, ``id`` and ``retry`` are skipped. Bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # pieces of an incomplete line, joined once, not per chunk
        self._after_cr = False
        self._first_line = True
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """Take the next bytes; returns the events they complete, in order."""
        if not chunk:
            return []
        if self._after_cr and chunk[0] == 0x0A:
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._partial.append(tail)
            return []
        self._partial.append(head)
        lines = b"".join(self._partial).split(b"\n")
        self._partial = [tail] if tail else []
        return self._take(lines)

    def finish(self) -> list[StreamEvent]:
        """End the stream; returns the event that lacked only its closing blank line, if there is one.

        The standard drops such an event. Servers that close right after ``data: [DONE]`` are common, and a
        truncated event fails as JSON, so this parser returns it.
        """
        last = b"".join(self._partial)
        self._partial = []
        return self._take([last, b""])

    def _take(self, lines: list[bytes]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if self._first_line:
            self._first_line = False
            lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            if not line:
                if self._data:
                    data = b"\n".join(self._data).decode("utf-8", "replace")
                    events.append(StreamEvent(self._name or "message", data))
                    self._data = []
                self._name = ""
                continue
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"event":
                self._name = value.removeprefix(b" ").decode("utf-8", "replace")
        return events

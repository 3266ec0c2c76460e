"""Parses server-sent events from raw bytes."""

import re

from fairlane.core.json_answers import json_or
from fairlane_workers.providers.framing.event import ERROR, StreamEvent

END_MARK = b"[DONE]"
"""How chat completions end a stream; some servers write it without its field."""

BOM = b"\xef\xbb\xbf"
FIELD = re.compile(rb"(?:data|event|id|retry|error)?:|data(?=[\r\n])")
"""How a line of server-sent events begins."""


class SseParser:
    """Reads ``text/event-stream`` (WHATWG HTML, "Server-sent events") incrementally.

    The events do not depend on how the bytes are split over calls of ``feed``. Lines may end in LF, CRLF or
    CR. Comments, ``id`` and ``retry`` are skipped. Bytes that are not UTF-8 become U+FFFD.

    More goes beyond the standard, because servers do. Data has no blanks around it, and an event without
    data, or whose data is a comment, is none: gateways keep connections alive with such. A field ``error`` is
    an event of that name (llama.cpp before September 2025). So is JSON that stands bare between events, up to
    a blank line (Google). A line of data that is whole by itself is an event also if no blank line follows.
    `END_MARK` alone on a line is data.
    """

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # pieces of an incomplete line, joined once, not per chunk
        self._after_cr = False
        self._first_line = True
        self._name = ""
        self._data: list[bytes] = []
        self._bare: list[bytes] = []

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
            lines[0] = lines[0].removeprefix(BOM)
        for line in lines:
            if self._bare:
                if line and not FIELD.match(line):
                    self._bare.append(line)
                    continue
                events.append(StreamEvent(ERROR, _decoded(self._bare)))
                self._bare, self._name = [], ""
            if not line:
                events.extend(self._end())
                continue
            if line.strip() == END_MARK:
                events.extend((*self._end(), StreamEvent("message", END_MARK.decode())))
                continue
            if not self._data and line.startswith((b"{", b"[")):
                self._bare.append(line)
                continue
            field, _, value = line.partition(b":")
            if len(self._data) == 1 and field in (b"data", b"event") and _is_whole(self._data[0]):
                events.extend(self._end())
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"event":
                self._name = value.removeprefix(b" ").decode("utf-8", "replace")
            elif field == b"error":
                events.append(StreamEvent(ERROR, _decoded([value])))
        return events

    def _end(self) -> list[StreamEvent]:
        """The event that a blank line ends, if there is one; many, if each line of its data is one."""
        name, data = self._name or "message", self._data
        self._name, self._data = "", []
        begin = next((at for at, line in enumerate(data) if not _is_blank_or_comment(line)), len(data))
        data = data[begin:]
        if len(data) > 1 and _is_whole(data[-1]) and not _is_whole(b"\n".join(data)):
            return [StreamEvent(name, _decoded([line])) for line in data if not _is_blank_or_comment(line)]
        text = _decoded(data)
        return [StreamEvent(name, text)] if text or name == ERROR else []


def _is_whole(data: bytes) -> bool:
    """Whether data is a JSON object, or the mark of a stream's end."""
    data = data.strip()
    if not (data.startswith(b"{") and data.endswith(b"}")):
        return data == END_MARK
    return isinstance(json_or(data), dict)


def _is_blank_or_comment(line: bytes) -> bool:
    plain = line.strip()
    return not plain or plain.startswith(b":")


def _decoded(lines: list[bytes]) -> str:
    return b"\n".join(lines).strip().decode("utf-8", "replace")

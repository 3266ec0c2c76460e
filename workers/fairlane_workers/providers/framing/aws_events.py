"""Amazon's event stream (``application/vnd.amazon.eventstream``): binary frames with checksums."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from fairlane_workers.providers.answers.answer import UnreadableError
from fairlane_workers.providers.framing.event import StreamEvent

if TYPE_CHECKING:
    from botocore.eventstream import EventStreamMessage

PRELUDE_BYTES = 12
"""Two lengths and their checksum: a frame cannot be shorter."""

ERROR = "error:"
"""The prefix of the name of an exception or error event; its type or code follows."""


class AwsEventParser:
    """Reads frames incrementally; botocore's decoder checks them, which bounds one at 24 MiB.

    An event's name is its event type, or `ERROR` and its exception type or error code. Its data is the
    payload, which is JSON text; an error's is ``{"message": …}``.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # of an incomplete frame, joined once, not per chunk
        self._held, self._wanted = 0, PRELUDE_BYTES

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """Take the next bytes; returns the events they complete, in order."""
        self._pieces.append(chunk)
        self._held += len(chunk)
        if self._held < self._wanted:
            return []
        data, at = b"".join(self._pieces), 0
        events: list[StreamEvent] = []
        while (message := _decoded(frame := _frame(data, at))) is not None:
            events.append(_event(message))
            at += len(frame)
        rest = data[at:]
        self._pieces, self._held, self._wanted = [rest], len(rest), max(PRELUDE_BYTES, _length(rest))
        return events

    def finish(self) -> list[StreamEvent]:
        """End the stream. A truncated frame holds no event."""
        return []


def _length(data: bytes) -> int:
    """The length of the frame that ``data`` begins with; 0 if it is not known yet."""
    return int.from_bytes(data[:4]) if len(data) >= PRELUDE_BYTES else 0


def _frame(data: bytes, at: int) -> bytes:
    """The frame that begins at ``at``, as far as it has arrived."""
    return data[at : at + max(PRELUDE_BYTES, _length(data[at : at + PRELUDE_BYTES]))]


def _decoded(frame: bytes) -> EventStreamMessage | None:
    """The message of a frame; ``None`` if it is not complete. Raises `UnreadableError`."""
    from botocore.eventstream import EventStreamBuffer, ParserError

    buffer = EventStreamBuffer()
    buffer.add_data(frame)
    try:
        return next(buffer, None)
    except (ParserError, struct.error, LookupError, ValueError) as problem:
        raise UnreadableError(f"not an event stream: {problem}") from None


def _event(message: EventStreamMessage) -> StreamEvent:
    headers, data = message.headers, message.payload.decode("utf-8", "replace")
    match headers.get(":message-type"):
        case "event":
            return StreamEvent(str(headers.get(":event-type", "")), data)
        case "exception":
            return StreamEvent(f"{ERROR}{headers.get(':exception-type', '')}", data)
        case "error":
            document = json.dumps({"message": str(headers.get(":error-message", ""))})
            return StreamEvent(f"{ERROR}{headers.get(':error-code', '')}", document)
    raise UnreadableError(f"not an event stream: a message of type {headers.get(':message-type')!r}")

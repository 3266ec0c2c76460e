"""Amazon's event stream (``application/vnd.amazon.eventstream``), as a server writes it."""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

from fairlane.testing.provider.dialect import write_json

_TEXT = b"\x07"


def event_frame(kind: str, payload: Mapping[str, object]) -> bytes:
    """An event whose payload is JSON."""
    return _frame(
        {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}, payload
    )


def exception_frame(kind: str, payload: Mapping[str, object]) -> bytes:
    """What ends a stream that failed."""
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return _frame(headers, payload)


def _frame(headers: Mapping[str, str], payload: Mapping[str, object]) -> bytes:
    """Lengths and their checksum, headers, payload, and the checksum of all of it."""
    told, data = b"".join(_header(name, text) for name, text in headers.items()), write_json(payload)
    lengths = (16 + len(told) + len(data)).to_bytes(4) + len(told).to_bytes(4)
    message = lengths + crc32(lengths).to_bytes(4) + told + data
    return message + crc32(message).to_bytes(4)


def _header(name: str, text: str) -> bytes:
    return bytes([len(name)]) + name.encode() + _TEXT + len(text).to_bytes(2) + text.encode()

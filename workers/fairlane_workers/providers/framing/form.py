"""Reads a body as the events or the one document that it is, by how it begins."""

from enum import Enum, auto

from fairlane.core.json_answers import json_or
from fairlane_workers.providers.framing.aws_events import AwsEventParser
from fairlane_workers.providers.framing.event import EventParser, StreamEvent
from fairlane_workers.providers.framing.ndjson import NdjsonParser
from fairlane_workers.providers.framing.sse import BOM, FIELD, SseParser

ENOUGH = 64
"""Bytes, without blanks before them, that show a body's form if fewer do not."""

SHOWN = 500
"""Bytes of a body that was no stream after all, for a message to quote."""

_BLANKS = b" \t\r\n"
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b"error:", BOM)
_UNCLEAR = frozenset(field[:size] for field in _FIELDS for size in range(len(field)))


class Form(Enum):
    """What a body is: one document, events of the protocol's own format, or server-sent events instead."""

    DOCUMENT = auto()
    OWN_EVENTS = auto()
    SSE = auto()


class BodyParser:
    """Splits a body into events, or keeps it whole as ``document`` if it is no stream.

    Servers send a stream where none was asked for, one document in place of a stream, and either under any
    content type. So the type counts only where the first bytes do not decide.
    """

    def __init__(self, own: EventParser | None, content_type: str, *, asked: bool) -> None:
        """``own``: the parser of the protocol's streams, if it has any. ``asked``: for a stream."""
        self._own, self._type = own, content_type.partition(";")[0].strip().lower()
        self._expected = asked and self._type != "application/json"
        self._held: list[bytes] = []  # not parsed yet, joined once, not per chunk
        self._size = 0
        self._parser: EventParser | None = None
        self._form = self._known_before()
        self.document: bytes | None = None
        self.stray = b""
        """How a body begins that was read as events, but only because of its content type."""

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """Take the next bytes; returns the events they complete, in order."""
        if self._parser is not None:
            if self.stray:
                self.stray = (self.stray + chunk)[:SHOWN]
            return self._seen(self._parser.feed(chunk))
        if self._form is None and not self._held:
            chunk = chunk.lstrip(_BLANKS)
        if chunk:
            self._held.append(chunk)
            self._size += len(chunk)
        if self._form is None and self._held:
            self._decide(over=False)
        return self._begin()

    def finish(self) -> list[StreamEvent]:
        """End the body: returns the events that its last bytes complete, or sets ``document``."""
        if self._form is None:
            self._decide(over=True)
        events = self._begin()
        if self._parser is None:
            body = b"".join(self._held)
            if not (isinstance(self._own, NdjsonParser) and _is_lines(body)):
                self.document = body
                return []
            self._parser = self._own
            events = self._parser.feed(body)
        return events + self._seen(self._parser.finish())

    def _known_before(self) -> Form | None:
        """The form that does not depend on the body: of protocols without streams, and of foreign formats."""
        if self._own is None:
            return Form.DOCUMENT
        if isinstance(self._own, SseParser | NdjsonParser | AwsEventParser):
            return None
        return Form.OWN_EVENTS if self._expected else Form.DOCUMENT

    def _decide(self, *, over: bool) -> None:
        held = b"".join(self._held)[:SHOWN]
        if over or self._size >= ENOUGH or not _is_unclear(held[:ENOUGH]):
            head = held[:ENOUGH].removeprefix(BOM).lstrip(_BLANKS)
            self._form = self._form_of(head)
            if self._form is Form.OWN_EVENTS and isinstance(self._own, SseParser) and not FIELD.match(head):
                self.stray = held

    def _form_of(self, head: bytes) -> Form:
        own = self._own
        if head.startswith((b"{", b"[")):
            lines = isinstance(own, NdjsonParser) and self._expected and not _bracket_is_alone(head)
            return Form.OWN_EVENTS if lines else Form.DOCUMENT
        if isinstance(own, AwsEventParser):
            return Form.OWN_EVENTS if head.startswith(b"\0") or not head else Form.DOCUMENT
        if FIELD.match(head):
            return Form.OWN_EVENTS if isinstance(own, SseParser) else Form.SSE
        if head.startswith(b"<"):  # a page
            return Form.DOCUMENT
        is_events = self._type == "text/event-stream" and isinstance(own, SseParser)
        return Form.OWN_EVENTS if is_events or (not head and self._expected) else Form.DOCUMENT

    def _begin(self) -> list[StreamEvent]:
        """Parse the bytes that were held back, if the body consists of events."""
        if self._parser is None and self._form in (Form.OWN_EVENTS, Form.SSE):
            self._parser = SseParser() if self._form is Form.SSE else self._own
            held, self._held = b"".join(self._held), []
            return self._seen(self._parser.feed(held)) if self._parser else []
        return []

    def _seen(self, events: list[StreamEvent]) -> list[StreamEvent]:
        if events:
            self.stray = b""
        return events


def _is_unclear(head: bytes) -> bool:
    """Whether more bytes may change what a body that begins so is."""
    rest = head.removeprefix(BOM).lstrip(_BLANKS)
    return rest in _UNCLEAR or (
        rest[:1] in (b"{", b"[") and not rest[1:].strip(b" \t\r") and b"\n" not in rest
    )


def _bracket_is_alone(head: bytes) -> bool:
    """Whether a document's opening bracket stands alone on its line, as it never does in JSON by the line."""
    return head[1:].lstrip(b" \t\r").startswith(b"\n")


def _is_lines(body: bytes) -> bool:
    """Whether a body is JSON by the line, and more than one."""
    first, _, rest = body.partition(b"\n")
    if not rest.strip():
        return False
    return isinstance(json_or(first), dict)

"""JSON documents, one a line (``application/x-ndjson``)."""

from fairlane_workers.providers.framing.event import StreamEvent


class NdjsonParser:
    """Splits a stream at its line ends and skips blank lines. Every event has the name ``message``.

    A last line without its end counts: a truncated one fails as JSON. Bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # pieces of an incomplete line, joined once, not per chunk

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """Take the next bytes; returns the events they complete, in order."""
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._partial.append(tail)
            return []
        whole = b"".join((*self._partial, head))
        self._partial = [tail]
        return _events(whole)

    def finish(self) -> list[StreamEvent]:
        """End the stream; returns its last line if it lacked only its end."""
        last, self._partial = b"".join(self._partial), []
        return _events(last)


def _events(data: bytes) -> list[StreamEvent]:
    lines = (line.strip() for line in data.split(b"\n"))
    return [StreamEvent("message", line.decode("utf-8", "replace")) for line in lines if line]

"""A provider's response, read in bounded pieces."""

import codecs
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import httpx

from fairlane_workers.transport.faults import TooLargeError, TransportError, named


@dataclass(slots=True)
class Reply:
    """An HTTP response whose body is still unread. Close it, read or not.

    ``_spoil`` lets no further call use the connection.
    """

    status: int
    headers: httpx.Headers
    _response: aiohttp.ClientResponse = field(repr=False)
    _spoil: Callable[[], object] = field(default=bool, repr=False)

    async def chunks(self, max_bytes: int) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, decompressed if it is compressed.

        Raises `TransportError` if the body breaks off, and `TooLargeError` if it exceeds ``max_bytes`` in
        either form.
        """
        size = 0
        try:
            pieces: AsyncIterator[bytes] = self._response.content.iter_any()
            head, window = await opened(pieces, self.headers.get("content-encoding", ""))
            if window is not None:
                pieces, head = unpacked(head, pieces, window, max_bytes), b""
            size = len(head)
            if head and size <= max_bytes:
                yield head
            if size <= max_bytes:
                async for chunk in pieces:
                    size += len(chunk)
                    if size > max_bytes:
                        break
                    yield chunk
        except Exception as error:
            raise named(error) from error
        if size > max_bytes:
            raise TooLargeError(max_bytes)

    async def aclose(self, *, keep: bool = True) -> None:
        """Return the connection to the pool if the body was read to its end, else close it.

        ``keep=False``: no further call uses the connection. Its server answered, and not as a sound one does.
        """
        if not keep:
            self._spoil()
        with suppress(Exception):  # the outcome is known by now: how its connection ends changes nothing
            self._response.release()
            await self._response.wait_for_close()


UNPACKED_BYTES = 64 * 1024
"""A body is unpacked in pieces of at most so many bytes, so that a decompression bomb ends at its bound."""

ENOUGH = 16
"""Bytes of a body whose header names an encoding, before it counts as text. Of compressed data, some three
of five bytes are no text, so one in a million is taken for it."""

_GZIP = b"\x1f\x8b"
_ZLIB = (b"\x78\x01", b"\x78\x9c", b"\x78\xda")  # a fourth, 78 5e, is also the text "x^"
_MAGIC = (_GZIP, *_ZLIB)
_UNCLEAR = (b"", _GZIP[:1], b"\x78")
_PLAIN = frozenset({"", "identity"})
_NONE: frozenset[str] = frozenset()
_GZIP_NAMES = frozenset({"gzip", "x-gzip"})

_EITHER_HEADER = zlib.MAX_WBITS | 32  # of gzip or zlib, detected by content
_NO_HEADER = -zlib.MAX_WBITS

_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r")


async def opened(pieces: AsyncIterator[bytes], encoding: str) -> tuple[bytes, int | None]:
    """Read a body's first bytes: returns them, and zlib's window bits if it is compressed.

    ``encoding`` is the header's value. Raises `TransportError` for bytes that are neither text nor gzip,
    zlib or deflate under a header that names an encoding.
    """
    named = _names_in(encoding) if encoding else _NONE
    head = b""
    async for piece in pieces:
        head = head + piece if head else piece
        if len(head) >= ENOUGH or not (named or head in _UNCLEAR):
            break
    return head, _window_of(head, named, encoding)


def _names_in(encoding: str) -> frozenset[str]:
    return frozenset(name.strip() for name in encoding.lower().split(",")) - _PLAIN


def _window_of(head: bytes, named: frozenset[str], encoding: str) -> int | None:
    if head.startswith(_MAGIC):
        return _EITHER_HEADER
    if not named or (head and _is_text(head[:ENOUGH])):
        return None
    if "deflate" in named:
        return _EITHER_HEADER if _has_zlib_header(head) else _NO_HEADER
    if encoding.strip().lower() in _GZIP_NAMES:
        raise TransportError("the body is not gzip, as its Content-Encoding says")
    raise TransportError(f"the body is encoded as {encoding[:40]!r}, which was not asked for")


def _is_text(head: bytes) -> bool:
    """Whether bytes are the beginning of a text in UTF-8, without control characters."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return _CONTROLS.isdisjoint(head)


def _has_zlib_header(head: bytes) -> bool:
    """See RFC 1950, section 2.2: method, window and check bits."""
    return len(head) > 1 and head[0] & 15 == 8 and head[0] < 128 and int.from_bytes(head[:2]) % 31 == 0


async def unpacked(
    head: bytes, pieces: AsyncIterator[bytes], window: int, max_bytes: int
) -> AsyncGenerator[bytes, None]:
    """The decompressed body, in pieces of at most 64 KiB. ``head`` comes before ``pieces``.

    Raises `TransportError` for a body that is broken or breaks off, or is larger than ``max_bytes`` while
    compressed: it may decompress to nothing for as long as it is sent.
    """
    decoder = zlib.decompressobj(window)
    packed, size = head, len(head)
    while True:
        if size > max_bytes:
            raise TransportError(f"larger than {max_bytes} bytes")
        while packed:
            try:
                yield decoder.decompress(packed, UNPACKED_BYTES)
            except zlib.error as error:
                raise TransportError(f"the compressed body is broken: {error}") from error
            packed = decoder.unconsumed_tail
        try:
            packed = await anext(pieces)
        except StopAsyncIteration:
            break
        size += len(packed)
    if not decoder.eof:
        raise TransportError("the compressed body breaks off")

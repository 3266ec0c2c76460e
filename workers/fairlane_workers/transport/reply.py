"""A provider's response, read in bounded pieces."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import httpx

from fairlane_workers.transport.faults import TransportError, named

DECOMPRESSED_BYTES = 64 * 1024
_PLAIN = ("", "identity")
_COMPRESSED = ("gzip", "x-gzip", "deflate")

_EITHER_HEADER = zlib.MAX_WBITS | 32  # of gzip or zlib, detected by content


@dataclass(slots=True)
class Reply:
    """An HTTP response whose body is still unread. Close it, read or not."""

    status: int
    headers: httpx.Headers
    _response: aiohttp.ClientResponse = field(repr=False)

    async def chunks(self, max_bytes: int) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, decompressed if it is compressed.

        Raises `TransportError` if the body breaks off, or exceeds ``max_bytes`` in either form.
        """
        size = 0
        try:
            async for chunk in self._plain(max_bytes):
                size += len(chunk)
                if size > max_bytes:
                    break
                yield chunk
        except Exception as error:
            raise named(error) from error
        if size > max_bytes:
            raise TransportError(f"larger than {max_bytes} bytes")

    async def aclose(self) -> None:
        """Return the connection to the pool if the body was read to its end, else close it."""
        with suppress(Exception):  # the outcome is known by now: how its connection ends changes nothing
            self._response.release()
            await self._response.wait_for_close()

    def _plain(self, max_bytes: int) -> AsyncIterator[bytes]:
        encoding = self.headers.get("content-encoding", "").strip().lower()
        pieces: AsyncIterator[bytes] = self._response.content.iter_any()
        return pieces if encoding in _PLAIN else _unpacked(_at_most(pieces, max_bytes), encoding)


async def _at_most(pieces: AsyncIterator[bytes], max_bytes: int) -> AsyncGenerator[bytes, None]:
    """Bounds a compressed body, too: it may decompress to nothing for as long as it is sent."""
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            raise TransportError(f"larger than {max_bytes} bytes")
        yield piece


async def _unpacked(pieces: AsyncIterator[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    """The decompressed body, in pieces of at most 64 KiB.

    Raises `TransportError` for an encoding other than gzip and deflate, and for a body that does not match
    its header or breaks off.
    """
    if encoding not in _COMPRESSED:
        raise TransportError(f"the body is encoded as {encoding[:40]!r}, which was not asked for")
    decoder = zlib.decompressobj(_EITHER_HEADER)
    async for packed in pieces:
        while packed:
            try:
                yield decoder.decompress(packed, DECOMPRESSED_BYTES)
            except zlib.error as error:
                raise TransportError(f"the body is not {encoding}: {error}") from error
            packed = decoder.unconsumed_tail
    if not decoder.eof:
        raise TransportError(f"the {encoding} body breaks off")

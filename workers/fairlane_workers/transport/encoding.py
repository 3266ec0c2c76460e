"""Unpacks bodies that a server or a gateway has packed although nobody asked for it, in bounded pieces."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator

from fairlane_workers.transport.faults import TransportError

PIECE_BYTES = 64 * 1024
PLAIN = ("", "identity")
PACKED = ("gzip", "x-gzip", "deflate")

_EITHER_HEADER = zlib.MAX_WBITS | 32  # gzip's or zlib's, whichever it finds


async def unpacked(pieces: AsyncIterator[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    """The body as its sender wrote it: at most 64 KiB are unpacked before they are handed on.

    Raises `TransportError` for an encoding other than gzip and deflate, and for a body that is not what its
    header says or breaks off.
    """
    if encoding not in PACKED:
        raise TransportError(f"the body is encoded as {encoding[:40]!r}, which was not asked for")
    decoder = zlib.decompressobj(_EITHER_HEADER)
    async for packed in pieces:
        while packed:
            try:
                yield decoder.decompress(packed, PIECE_BYTES)
            except zlib.error as error:
                raise TransportError(f"the body is not {encoding}: {error}") from error
            packed = decoder.unconsumed_tail
    if not decoder.eof:
        raise TransportError(f"the {encoding} body breaks off")

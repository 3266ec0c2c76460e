"""A provider's response, whichever version of HTTP it came over."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from fairlane_workers.transport.encoding import PLAIN, unpacked
from fairlane_workers.transport.faults import TransportError, named


class Body(Protocol):
    """The bytes of a response, as a version of HTTP delivers them."""

    def pieces(self) -> AsyncIterator[bytes]:
        """The bytes as they arrive, to the end of the body. Raises where it breaks off."""
        ...

    async def aclose(self) -> None:
        """Let go of what the body arrives on."""
        ...


@dataclass(slots=True)
class Reply:
    """An HTTP response whose body has not been read. Close it, read or not."""

    status: int
    headers: httpx.Headers
    _body: Body = field(repr=False)

    async def chunks(self, max_bytes: int) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, unpacked where it was packed.

        Raises `TransportError` where it breaks off or exceeds ``max_bytes``, in either form.
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
        """Give the connection back if the body was read to its end, close it otherwise."""
        with suppress(Exception):  # the answer is settled: how its connection dies says nothing about it
            await self._body.aclose()

    def _plain(self, max_bytes: int) -> AsyncIterator[bytes]:
        encoding = self.headers.get("content-encoding", "").strip().lower()
        pieces = self._body.pieces()
        return pieces if encoding in PLAIN else unpacked(_at_most(pieces, max_bytes), encoding)


async def _at_most(pieces: AsyncIterator[bytes], max_bytes: int) -> AsyncGenerator[bytes, None]:
    """A packed body may hold nothing for as long as it likes: it is bounded before it is unpacked, too."""
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            raise TransportError(f"larger than {max_bytes} bytes")
        yield piece

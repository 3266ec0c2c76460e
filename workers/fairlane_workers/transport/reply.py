"""A provider's response, read in bounded pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import httpx

from fairlane_workers.transport.faults import TooLargeError, named
from fairlane_workers.transport.packing import opened, unpacked


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

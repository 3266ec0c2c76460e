"""What every scheme of authentication does: headers for all requests, and what one request adds."""

from __future__ import annotations

import httpx


class CredentialError(Exception):
    """There is no usable credential; the text says why and holds none of it. Never leaves this package."""


class Authorizer:
    """Sends no credential; what schemes override is here. One instance serves one connection."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be passed on in a message, as it stands now."""
        return ()

    def fixed(self) -> dict[str, str]:
        """Headers that every request carries; asked for once."""
        return {}

    async def sign(
        self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes
    ) -> httpx.Headers:
        """The headers that this one request is sent with. Must not change ``headers``.

        Raises `CredentialError`, which parks the lane, and `TransportError` where no token could be fetched.
        """
        return headers

    async def aclose(self) -> None:
        """Give back what fetching tokens needed."""

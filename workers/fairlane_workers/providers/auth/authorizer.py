"""Authenticates the requests of a connection: with nothing, or with a key in a header."""

import httpx
from pydantic import SecretStr

from fairlane.core.redaction import Secrets


class CredentialError(Exception):
    """No credential can be used; the text says why and quotes none. Never leaves this package."""


def fits_header(key: str) -> bool:
    """Whether an HTTP header can carry a key."""
    return key.isascii() and key.isprintable() and " " not in key


class Authorizer:
    """Sends no credential; other schemes override its methods. One instance serves one connection."""

    @property
    def secrets(self) -> Secrets | tuple[str, ...]:
        """The texts that no message may contain, as they are now, or what masks them, made ahead."""
        return ()

    @property
    def mark(self) -> int:
        """The number of the credential that `sign` gave last; it grows with each new one."""
        return 0

    def fixed(self) -> dict[str, str]:
        """Headers that every request carries; read once."""
        return {}

    async def sign(
        self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes
    ) -> httpx.Headers:
        """The headers to send with this request; leaves ``headers`` unchanged.

        Raises `CredentialError`, which denies access, and `TransportError` if no token could be fetched.
        """
        return headers

    def reject(self) -> None:
        """Note that the service has rejected a credential. One that was fetched is fetched again."""

    def accept(self, mark: int) -> None:
        """Note that the service has taken the credential of this number."""

    async def replaced(self, mark: int, now_ms: int) -> bool:
        """Note that the service has rejected the credential of this number, at ``now_ms`` by its own clock.

        True if there is another one by now: then the rejection says nothing about that.
        """
        self.reject()
        return False

    async def aclose(self) -> None:
        """Stop fetching tokens."""


class HeaderKey(Authorizer):
    """``header: <prefix><key>``, such as ``authorization: Bearer sk-…``."""

    def __init__(self, header: str, key: SecretStr, prefix: str = "") -> None:
        self._header, self._key, self._prefix = header, key, prefix

    @property
    def secrets(self) -> tuple[str, ...]:
        """See `Authorizer.secrets`."""
        return (self._key.get_secret_value(),)

    def fixed(self) -> dict[str, str]:
        """See `Authorizer.fixed`."""
        return {self._header: self._prefix + self._key.get_secret_value()}

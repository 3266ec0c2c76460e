"""A key that goes as a header: most providers."""

from __future__ import annotations

from pydantic import SecretStr

from fairlane_workers.providers.auth.authorizer import Authorizer


class HeaderKey(Authorizer):
    """``header: <prefix><key>``, such as ``authorization: Bearer sk-…``."""

    def __init__(self, header: str, key: SecretStr, prefix: str = "") -> None:
        self._header, self._key, self._prefix = header, key, prefix

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._key.get_secret_value(),)

    def fixed(self) -> dict[str, str]:
        return {self._header: self._prefix + self._key.get_secret_value()}

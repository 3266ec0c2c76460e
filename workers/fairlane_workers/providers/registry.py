"""Which protocols there are, and how a configured connection becomes a provider."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from pydantic import SecretStr

from fairlane.clock import Clock, SystemClock
from fairlane.errors import ConfigurationError
from fairlane.settings import Connection
from fairlane_workers.providers.anthropic import AnthropicDialect
from fairlane_workers.providers.contract import Provider
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.http_provider import HttpProvider
from fairlane_workers.providers.openai import OpenAIDialect
from fairlane_workers.transport import Transport

DIALECTS: dict[str, Callable[[], Dialect]] = {
    "openai": OpenAIDialect,
    "anthropic": AnthropicDialect,
}


def build_provider(
    connection_name: str,
    connection: Connection,
    api_key: SecretStr | None,
    *,
    transport: Transport | None = None,
    clock: Clock | None = None,
) -> Provider:
    """The provider of a connection, with a transport of its own unless one is given.

    Nothing is opened before the first call; ``aclose`` closes the transport. Raises `ConfigurationError` for
    an unknown protocol, a base URL that is none or holds a password, and a key that no header can carry.
    """
    field = f"connections.{connection_name}"
    dialect = DIALECTS.get(connection.protocol)
    if dialect is None:
        known = ", ".join(sorted(DIALECTS))
        raise ConfigurationError(
            f"{field}.protocol", connection.protocol, "no such protocol", f"Known: {known}."
        )
    return HttpProvider(
        name=connection_name,
        dialect=dialect(),
        base_url=_base_url(f"{field}.base_url", connection.base_url),
        api_key=_usable_key(f"{field}.api_key_env", api_key),
        transport=transport or Transport(connect_timeout_s=connection.connect_timeout),
        clock=clock or SystemClock(),
        limits=connection.limit_headers,
    )


def _base_url(field: str, text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigurationError(
            field, text, f"not a URL: {error}", "Write scheme, host and path."
        ) from error
    if not url.host:
        raise ConfigurationError(field, text, "names no host", "Write https://<host>/<path>.")
    if url.userinfo:
        raise ConfigurationError(
            field,
            "(hidden)",
            "holds a user or password",
            "Name the variable of the key in api_key_env instead.",
        )
    return url


def _usable_key(field: str, key: SecretStr | None) -> SecretStr | None:
    """The key without surrounding space (a file's last newline); ``None`` if nothing is left of it."""
    text = key.get_secret_value().strip() if key else ""
    if not text:
        return None
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise ConfigurationError(
            field, "(hidden)", "the key holds characters that no HTTP header can carry", "Copy it once more."
        )
    return SecretStr(text)

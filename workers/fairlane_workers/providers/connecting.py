"""A connection's settings of how its provider is reached, as a transport."""

from __future__ import annotations

from typing import TypeVar

from pydantic import SecretStr

from fairlane.connection import Connection
from fairlane.errors import ConfigurationError
from fairlane_workers.transport import Transport, UnusableSettingError, with_credentials

T = TypeVar("T", bound=Transport)


def open_transport(
    name: str,
    connection: Connection,
    proxy_credentials: SecretStr | None = None,
    *,
    kind: type[T] = Transport,  # type: ignore[assignment]
) -> T:
    """The transport that a connection asks for; nothing is opened before the first call.

    ``proxy_credentials`` are ``user:password``. Raises `ConfigurationError` for a file that cannot be read, a
    proxy that is none, and an extra that is missing.
    """
    proxy = connection.proxy
    if proxy is not None and proxy_credentials is not None:
        proxy = with_credentials(proxy, proxy_credentials.get_secret_value())
    try:
        return kind(
            connect_timeout_s=connection.connect_timeout,
            proxy=proxy,
            ca_file=connection.ca_file,
            client_certificate=connection.client_certificate,
            http2=connection.http2,
        )
    except UnusableSettingError as error:
        field = f"connections.{name}.{error.field}"
        raise ConfigurationError(field, error.value, error.problem, error.remedy) from error

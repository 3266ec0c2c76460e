"""Opens the transport that a connection's settings describe."""

from __future__ import annotations

from typing import TypeVar

from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.core.errors import ConfigurationError
from fairlane_workers.transport import Transport, UnusableSettingError, with_credentials

T = TypeVar("T", bound=Transport)


def open_transport(
    name: str,
    connection: Connection,
    proxy_credentials: SecretStr | None = None,
    *,
    kind: type[T] = Transport,  # type: ignore[assignment]
) -> T:
    """The transport of a connection; nothing is opened before the first call.

    ``proxy_credentials`` are ``user:password``. Raises `ConfigurationError` for a file that cannot be read
    and for a proxy URL that cannot be used.
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
        )
    except UnusableSettingError as error:
        of_connection = error.field in Connection.model_fields  # else a variable of the environment
        field = f"connections.{name}.{error.field}" if of_connection else error.field
        raise ConfigurationError(field, error.value, error.problem, error.remedy) from error

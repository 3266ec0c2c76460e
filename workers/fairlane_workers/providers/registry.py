"""Opens the provider of each connection on its own: its protocol, transport and credentials."""

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TypeAlias, TypeVar, cast

import httpx
from pydantic import SecretStr

from fairlane.config.connections.checks import PROTOCOL_GROUP
from fairlane.config.connections.connection import Connection
from fairlane.config.settings import WorkerSecrets
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.errors import ConfigurationError
from fairlane.core.events import Event
from fairlane.core.redaction import Secrets
from fairlane.model.outcome import AccessDenied, Outcome
from fairlane.telemetry.logs import get_logger
from fairlane_workers.providers.answers.classify import Reading
from fairlane_workers.providers.auth.authorizer import Authorizer, HeaderKey, fits_header
from fairlane_workers.providers.auth.google import google_token
from fairlane_workers.providers.auth.rotating_key import RotatingHeader, RotatingKey, rotating_key
from fairlane_workers.providers.auth.sigv4 import SigV4, region_of
from fairlane_workers.providers.contract import OnChunk, Provider, Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.errors.wording import bounded, scrubbed
from fairlane_workers.providers.http.provider import HttpProvider
from fairlane_workers.providers.unsupported.adapting import AdaptingProvider
from fairlane_workers.transport import Transport, UnusableSettingError, with_credentials

log = get_logger("provider")

T = TypeVar("T", bound=Transport)
BuildProvider: TypeAlias = Callable[[str, Connection, SecretStr | None, Clock], Provider]


class UnusableProvider:
    """Stands for a connection that this worker cannot use; ``reason`` says why.

    The worker serves none of its lanes. Only a lane that is named after a server or another connection can
    bring a call, and that call parks it.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        """Deny the call. Nothing is sent."""
        return AccessDenied(self.reason)

    async def prepare(self) -> None:
        """See `Provider.prepare`."""

    async def aclose(self) -> None:
        """See `Provider.aclose`."""


async def open_provider(
    name: str, connection: Connection, held: WorkerSecrets, clock: Clock, rotating: RotatingKey | None = None
) -> Provider:
    """The provider of a connection, ready for its first call; an `UnusableProvider` if that fails.

    ``rotating``: its key, where that may change.
    """
    key, proxy = held.keys.get(name), held.proxies.get(name)
    try:
        provider = build_provider(
            name, connection, key, proxy_credentials=proxy, clock=clock, rotating=rotating
        )
        await provider.prepare()
    except Exception as error:  # noqa: BLE001 - packages of others add protocols
        secrets = Secrets(tuple(each.get_secret_value() for each in (key, proxy) if each is not None))
        reason = bounded(scrubbed(str(error) or type(error).__name__, secrets))
        log.error(Event.CONNECTION_UNUSABLE, connection=name, error=reason)  # noqa: TRY400 - it says all
        return UnusableProvider(reason)
    return AdaptingProvider(name, provider, clock)


def build_provider(
    connection_name: str,
    connection: Connection,
    api_key: SecretStr | None,
    *,
    proxy_credentials: SecretStr | None = None,
    transport: Transport | None = None,
    clock: Clock | None = None,
    rotating: RotatingKey | None = None,
) -> Provider:
    """The provider of a connection, with a transport of its own unless one is given.

    ``rotating`` is its key, where that is in a file or a command's output; left out, it gets one of its own.
    Nothing is opened before the first call; ``aclose`` closes the transport. Raises `ConfigurationError` for
    an unknown protocol, a bad base URL or one with a password, and a key that no header can carry. It raises
    what `open_transport` raises, too.
    """
    field, clock = f"connections.{connection_name}", clock or SystemClock()
    protocol = load_protocol(f"{field}.protocol", connection.protocol)
    if not (isinstance(protocol, type) and issubclass(protocol, Dialect)):
        _require_variable(field, connection)
        key = _usable_key(f"{field}.api_key_env", api_key)
        return cast(BuildProvider, protocol)(connection_name, connection, key, clock)
    rotating = rotating or rotating_key(connection_name, connection, clock)
    return HttpProvider(
        connection_name,
        protocol.of(connection),
        _base_url(f"{field}.base_url", connection.base_url),
        transport or open_transport(connection_name, connection, proxy_credentials),
        clock,
        authorizer=google_token(connection_name, connection, api_key, _proxy(connection, proxy_credentials))
        if connection.scheme == "google"
        else _authorizer(connection, rotating or _usable_key(f"{field}.api_key_env", api_key), clock),
        reading=reading_of(connection),
        headers=connection.headers,
        embeddings=protocol.embeddings_of(connection),
    )


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
    try:
        return kind(
            connect_timeout_s=connection.connect_timeout,
            proxy=_proxy(connection, proxy_credentials),
            ca_file=connection.ca_file,
            client_certificate=connection.client_certificate,
        )
    except UnusableSettingError as error:
        of_connection = error.field in Connection.model_fields  # else a variable of the environment
        field = f"connections.{name}.{error.field}" if of_connection else error.field
        raise ConfigurationError(field, error.value, error.problem, error.remedy) from error


def reading_of(connection: Connection) -> Reading:
    """How the errors of a connection are read: by its settings, then by the habits of its provider."""
    return Reading.of(connection, preset.statuses if (preset := connection.preset) else {})


def load_protocol(field: str, name: str) -> type[Dialect] | BuildProvider:
    """The object that the entry point ``name`` in group ``fairlane.protocols`` names, imported now.

    For a protocol of HTTP requests it is a subclass of `Dialect`. Otherwise it is a callable that builds a
    `Provider` from the connection's name, the connection, its key and a clock. Fairlane's own protocols take
    precedence. Raises `ConfigurationError` about ``field`` if no such protocol is installed, or it cannot be
    imported.
    """
    installed = _installed(tuple(sys.path))
    found = sorted(installed.select(name=name), key=lambda point: not _is_own(point))
    if not found:
        known = ", ".join(sorted({point.name for point in installed}))
        raise ConfigurationError(field, name, "no such protocol is installed", f"Known: {known}.")
    try:
        return cast("type[Dialect] | BuildProvider", found[0].load())
    except (ImportError, AttributeError) as error:
        problem = f"its entry point {found[0].value!r} cannot be loaded: {error}"
        raise ConfigurationError(field, name, problem, "Install the package that adds it again.") from error


@lru_cache(maxsize=1)
def _installed(path: tuple[str, ...]) -> EntryPoints:
    """The protocols of all packages on ``path``, which is ``sys.path``: reading them takes milliseconds."""
    return entry_points(group=PROTOCOL_GROUP)


def _is_own(point: EntryPoint) -> bool:
    return point.module.startswith("fairlane_workers.")


def _authorizer(connection: Connection, key: RotatingKey | SecretStr | None, clock: Clock) -> Authorizer:
    match connection.scheme:
        case "sigv4":
            return SigV4(region_of(connection), clock=clock)
        case "bearer":
            header, prefix = "authorization", "Bearer "
        case "x-api-key" | "api-key" | "x-goog-api-key" as named:
            header, prefix = named, ""
        case _:
            return Authorizer()
    if isinstance(key, RotatingKey):
        return RotatingHeader(header, key, prefix)
    return Authorizer() if key is None else HeaderKey(header, key, prefix)


def _require_variable(field: str, connection: Connection) -> None:
    """Protocols of packages take a key once, when they are built."""
    place = connection.key_place
    if place is not None and place.changes:
        field, problem = f"{field}.{place.field}", f"protocol {connection.protocol!r} takes its key once"
        raise ConfigurationError(field, place.name, problem, "Name a variable in api_key_env.")


def _proxy(connection: Connection, credentials: SecretStr | None) -> str | None:
    """The URL of a connection's proxy, with the credentials that it takes."""
    if connection.proxy is None or credentials is None:
        return connection.proxy
    return with_credentials(connection.proxy, credentials.get_secret_value())


def _base_url(field: str, text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError) as error:
        problem = f"not a URL: {error}"
        raise ConfigurationError(field, text, problem, "Write scheme, host and path.") from error
    if not url.host:
        raise ConfigurationError(field, text, "names no host", "Write https://<host>/<path>.")
    if url.userinfo:
        remedy = "Name the variable of the key in api_key_env instead."
        raise ConfigurationError(field, "(hidden)", "holds a user or password", remedy)
    return url


def _usable_key(field: str, key: SecretStr | None) -> SecretStr | None:
    """The key without surrounding space (a file's last newline); ``None`` if nothing is left of it."""
    text = key.get_secret_value().strip() if key else ""
    if not text:
        return None
    if not fits_header(text):
        problem = "the key holds characters that no HTTP header can carry"
        raise ConfigurationError(field, "(hidden)", problem, "Copy it once more.")
    return SecretStr(text)

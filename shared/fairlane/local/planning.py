"""Chooses Redis, ports and simulated connections of a local stack, by settings and flags."""

from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from fairlane.cli.invocation import Invocation
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError
from fairlane.embedded.ports import answers
from fairlane.embedded.private import PRIVATE, make_private
from fairlane.export.files import whole_file
from fairlane.local.plan import SIMULATED, address_of, connection_variables
from fairlane.local.stack import Stack

SIMULATOR_URL = "http://127.0.0.1:8100/v1"
REDIS_PORT = 6379
EVERYTHING = "*\n"  # the contents of .gitignore in a data directory
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


def settings_for(invocation: Invocation, simulate: bool) -> Settings:
    """The settings in force; with ``simulate`` they always have a connection ``sim``."""
    if not simulate:
        return invocation.settings()
    try:
        settings = invocation.settings()
    except ConfigurationError:
        # Lanes may name a connection that only the simulation adds; other errors are raised again below.
        settings = Settings()
    if SIMULATED.keys() <= settings.connections.keys():
        return settings
    added = {name: {"protocol": protocol, "base_url": SIMULATOR_URL} for name, protocol in SIMULATED.items()}
    return invocation.settings(connections=added)


def simulated_connections(settings: Settings) -> dict[str, str]:
    """Connections to the simulated provider, whose names begin with ``sim``: name → protocol."""
    names = [name for name in settings.connections if name.startswith(tuple(SIMULATED))]
    return SIMULATED | {name: settings.connections[name].protocol for name in names}


def simulator_port(settings: Settings) -> int | None:
    """The simulated provider's port in the settings, which manually started workers call."""
    for name in simulated_connections(settings):
        connection = settings.connections.get(name)
        address = urlsplit(connection.base_url) if connection else None
        if address and address.hostname in LOCAL_HOSTS and address.port:
            return address.port
    return None


def choose_redis(flag: str | None, settings: Settings) -> tuple[str | None, int | None]:
    """The URL of a server to use, or ``None`` and the preferred port of an embedded one. A configured URL is
    used, unless it is local and nobody listens there: then the stack serves it. Without a configured URL the
    stack uses no server that happens to run here.
    """
    if flag is not None:
        return flag, None
    if "url" not in settings.redis.model_fields_set:
        return None, REDIS_PORT
    address = urlsplit(settings.redis.url)
    ours_to_serve = (
        address.scheme == "redis"
        and address.hostname in LOCAL_HOSTS
        and not address.username
        and not address.password
        and address.path in ("", "/", "/0")
    )
    port = address.port or REDIS_PORT
    if not ours_to_serve or answers(str(address.hostname), port):
        return settings.redis.url, None
    return None, port


def variables_for_others(stack: Stack, invocation: Invocation) -> dict[str, str]:
    """Variables that another terminal must set to use this stack, except those that its settings imply."""
    try:
        stated = Invocation(config=invocation.config).settings()
    except ConfigurationError:
        stated = Settings()
    known = {
        "FAIRLANE_CONFIG" if invocation.config is None else "",
        "FAIRLANE_REDIS__URL" if stated.redis.url == stack.redis_url else "",
    }
    for name, connection in stated.connections.items():
        if connection.base_url == address_of(stack.simulator_url or "", connection.protocol):
            known |= connection_variables(name, connection.protocol, connection.base_url).keys()
    variables = stack.environment.items()
    return {name: value for name, value in variables if name.startswith("FAIRLANE_") and name not in known}


def hide_data_dir(data_dir: Path) -> None:
    """Hide the data directory from version control and other users. One that was there before, without this
    ``.gitignore``, may be shared, such as a project's, and stays as it is unless it is empty.
    """
    mark = data_dir / ".gitignore"
    if mark.exists() and mark.read_text(encoding="utf-8", errors="replace") == EVERYTHING:
        with suppress(PermissionError):  # somebody else's
            data_dir.chmod(PRIVATE)
    make_private(data_dir)
    if not any(data_dir.iterdir()):
        with whole_file(mark) as file:
            file.write(EVERYTHING)

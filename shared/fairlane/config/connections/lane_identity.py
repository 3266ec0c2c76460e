"""Finds out which connections share a provider's limit, and which have the same server."""

import hashlib
import json
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlsplit

from fairlane.config.connections.connection import AMBIENT, Connection
from fairlane.model.lane import endpoint_id, host_of

ANY_MODEL = "*"
_ACCOUNT_HEADERS = ("openai-organization", "openai-project", "x-goog-user-project")
"""With these a key may stand for more than one account, each with limits of its own."""


def lane_identity(connection: Connection, model: str, credential: str | None = None) -> str:
    """The scope of the limit on a model's calls: ``credential=0123456789ab base_url=https://… model=gpt-4o``.

    ``credential`` is the fingerprint of its key, which workers report. Until then the place of the key stands
    for it, and for a connection without a key its base URL. The text names the provider only if it has no
    URL. It is the same in every process and on every machine.
    """
    if connection.scope == "endpoint":
        return endpoint_id(connection.base_url)
    held, parts = _credential(connection, credential), set(connection.lane_parts)
    if "credential" in parts and held is None:
        parts = parts - {"credential"} | {"base_url"}
    url = _plain(connection.base_url)
    values: dict[str, str] = {}
    if "base_url" not in parts:
        values["provider"] = connection.provider or connection.protocol
    if "credential" in parts and held is not None:
        values["credential"] = held
        values |= _account(connection)
    if "region" in parts:
        values["region"] = connection.region or url
    if "base_url" in parts:
        values["base_url"] = url
    if "model" in parts:
        values["model"] = model
    return " ".join(f"{part}={quote(value, safe='/:@+,$')}" for part, value in values.items())


def server_digests(connections: Mapping[str, Connection]) -> dict[str, str]:
    """By connection, a digest of the settings that answers depend on: server, protocol, headers and so on.

    The answer cache shares answers between equal ones. Credentials, limits and network settings do not count.
    """
    return {name: _server(connection) for name, connection in connections.items()}


def lane_owners(
    identities: Mapping[str, str],
    before: Mapping[str, str],
    may_join: Callable[[str, str], bool] = lambda one, other: True,
) -> dict[str, str]:
    """For each connection, the one whose lanes it uses: connections with one identity use those of one.

    ``identities`` are in the order of the configuration, ``before`` is the last choice. The owner of the
    lanes keeps them while it shares them; otherwise the first connection becomes the owner. So a lane's name
    changes only for connections that join others or leave them. ``may_join(name, owner)`` is called for
    connections that do not share lanes yet.
    """
    groups: dict[str, list[str]] = {}
    for name, identity in identities.items():
        groups.setdefault(identity, []).append(name)
    chosen: dict[str, str] = {}
    for names in groups.values():
        own = [name for name in names if before.get(name) == name] or names
        owner = max(own, key=lambda each: sum(before.get(name) == each for name in names))
        for name in names:
            shares = name == owner or before.get(name) == owner or may_join(name, owner)
            chosen[name] = owner if shares else name
    return {name: chosen[name] for name in identities}


def credentials_by_connection(
    connections: Mapping[str, Connection], reported: Mapping[str, str]
) -> dict[str, str | None]:
    """The fingerprint of each connection's key: the reported one, or that of another with the same place."""
    known = {
        place: reported[name]
        for name, connection in connections.items()
        if (place := connection.key_place) is not None and name in reported
    }
    return {
        name: reported.get(name) or (known.get(place) if (place := each.key_place) else None)
        for name, each in connections.items()
    }


def lane_under(lane: str, connection: str) -> str:
    """The lane of the same model, or of all, under the name of another connection."""
    _, separator, model = lane.partition(":")
    return f"{connection}{separator}{model}"


def _server(connection: Connection) -> str:
    url = _plain(connection.base_url)
    decides = {"protocol", "region", "project", "api_version", "headers", "endpoint"}
    fields = connection.model_dump(mode="json", include=decides)
    if not connection.reasoning_tags:
        fields["reasoning_tags"] = False
    text = json.dumps([url, fields], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _credential(connection: Connection, reported: str | None) -> str | None:
    scheme = connection.scheme
    if scheme == "none":
        return None
    if reported is not None:
        return reported
    if (place := connection.key_place) is not None:
        return place.identity
    return scheme if scheme in AMBIENT else None


def _account(connection: Connection) -> dict[str, str]:
    stated = {name.lower(): value for name, value in connection.headers.items()}
    return {name: stated[name] for name in _ACCOUNT_HEADERS if name in stated}


def _plain(url: str) -> str:
    """One spelling of a URL: scheme and host in lower case, no usual port, no slash at the end."""
    parts = urlsplit(url.strip())
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme.lower()}://{host_of(parts)}{parts.path.rstrip('/')}{query}"

"""Connections and providers as JSON and as rows: their settings, what each needs and what it lacks here."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fairlane.cli.commands import is_installed
from fairlane.cli.output import fields_of
from fairlane.config.connections.checks import example_of
from fairlane.config.connections.connection import Connection
from fairlane.config.connections.key_place import KEY_FIELDS
from fairlane.config.connections.presets import Preset
from fairlane.config.problems import dotted
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.core.paths import FORBIDDEN, unreadable
from fairlane.core.redaction import mask_text

_EXTRAS = {"bedrock": "botocore", "vertex": "google.auth", "litellm": "litellm"}
"""The extras of the installation, each with the module that it brings."""

_EXTRA_OF_SCHEME = {"sigv4": "bedrock", "google": "vertex"}
_AMBIENT = {"sigv4": "AWS credentials", "google": "Google credentials"}


def connection_document(name: str, settings: Settings, secrets: WorkerSecrets) -> dict[str, Any]:
    """A connection as JSON without secrets; ``lacks`` is what this environment needs to make its calls."""
    connection = settings.connections[name]
    return {
        "name": name,
        **fields_of(connection, "provider", "protocol"),
        "base_url": mask_text(connection.base_url),
        "auth": connection.scheme,
        "api_key_env": connection.api_key_env,
        "api_key_file": None if connection.api_key_file is None else str(connection.api_key_file),
        "api_key_command": connection.api_key_command[0] if connection.api_key_command else None,
        "key_set": None if connection.key_place is None else name not in secrets.missing,
        "lane_scope": connection.scope,
        "lane_by": list(lane_by(connection)),
        "limits": _limits(connection, settings, name),
        "limit_headers": connection.limit_headers,
        "stream": connection.stream,
        "structured_output": "tool" if connection.tooled else connection.structured,
        "headers": dict(connection.headers),
        "error_map": dict(connection.error_map),
        "proxy": connection.proxy,
        "lacks": lacks_of(name, connection, secrets),
    }


def provider_document(name: str, preset: Preset) -> dict[str, Any]:
    """A provider's preset as JSON, and which fields a connection to it needs."""
    return {
        "provider": name,
        **fields_of(preset, "title", "protocol", "base_url", "api_key_env"),
        "lane_by": list(preset.lane),
        "charge": preset.charge,
        "limits": dict(preset.limits),
        "output_factors": dict(preset.output_factors),
        "limit_headers": preset.limit_headers,
        "needs": needs_of(preset),
    }


def needs_of(preset: Preset) -> list[str]:
    """What a connection needs beside ``provider``: fields, a key, the workers' own credentials, an extra."""
    fields = preset.address_fields if preset.base_url else ("base_url",)
    ambient = {_EXTRA_OF_SCHEME[scheme]: words for scheme, words in _AMBIENT.items()}
    key = preset.api_key_env or ambient.get(preset.protocol)
    extra = f"fairlane[{preset.protocol}]" if preset.protocol in _EXTRAS else None
    return [*fields, *(need for need in (key, extra) if need)]


def lane_by(connection: Connection) -> tuple[str, ...]:
    """What two calls must have in common to share a limit."""
    return ("host",) if connection.scope == "endpoint" else connection.lane_parts


def connection_row(document: Mapping[str, Any]) -> tuple[object, ...]:
    """One line of the table of connections."""
    return (
        document["name"],
        document["provider"] or "–",
        document["protocol"],
        document["base_url"],
        key_in_words(document),
        ", ".join(document["lane_by"]),
        "; ".join(document["lacks"]) or "nothing",
    )


def key_in_words(document: Mapping[str, Any]) -> str:
    """The place of a connection's key, and whether this environment has the key."""
    state = "set", "not set"
    for field in KEY_FIELDS:
        if document.get(field) is not None:
            return f"{document[field]}, {state[0] if document['key_set'] else state[1]}"
        state = "here", "not here"
    return _AMBIENT.get(document["auth"], "none")


def connection_fields(document: Mapping[str, Any]) -> list[tuple[str, object]]:
    """One connection in full, as names and values."""
    limits = ", ".join(f"{name} = {value}" for name, value in document["limits"].items())
    shown: dict[str, object] = {
        "connection": document["name"],
        "provider": document["provider"] or "none named",
        "protocol": document["protocol"],
        "address": document["base_url"],
        "key": key_in_words(document),
        "authentication": document["auth"],
        "lanes by": ", ".join(document["lane_by"]),
        "known limits": limits or "none: Fairlane detects all limits",
        "limit headers": document["limit_headers"] or "recognized by host and headers",
        "streams": "yes" if document["stream"] else "no",
        "structured output": {True: "yes", False: "no", "tool": "by a tool"}[document["structured_output"]],
        "headers": ", ".join(document["headers"]) or "none of its own",
        "lacks": "; ".join(document["lacks"]) or "nothing",
    }
    optional = {"error_map": "errors read as", "proxy": "proxy"}
    shown |= {title: document[name] for name, title in optional.items() if document[name]}
    return list(shown.items())


def _limits(connection: Connection, settings: Settings, name: str) -> dict[str, Any]:
    """The known limits of all its lanes, or of its one lane."""
    stated = settings.limits_of(name) if connection.scope == "connection" else None
    return stated.model_dump(exclude_unset=True) if stated else connection.lane_defaults("")


def lacks_of(name: str, connection: Connection, secrets: WorkerSecrets) -> list[str]:
    """What this environment lacks to make a connection's calls, the key first."""
    place = connection.key_place
    key = [place.title] if place is not None and name in secrets.missing else []
    return [*key, *lacks_besides_key(name, connection, secrets)]


def lacks_besides_key(name: str, connection: Connection, secrets: WorkerSecrets) -> list[str]:
    """What this environment lacks to make a connection's calls, besides the key."""
    found = []
    if connection.proxy_credentials_env and name not in secrets.proxies:
        found.append(f"the variable {connection.proxy_credentials_env}")
    for field in ("ca_file", "client_certificate"):
        file = getattr(connection, field)
        if file is not None and (problem := unreadable(file)):
            found.append(f"the file {file}" + (f", which {problem}" if problem == FORBIDDEN else ""))
    return found + [f"fairlane[{extra}]" for extra in _extras(connection) if not is_installed(_EXTRAS[extra])]


def _extras(connection: Connection) -> list[str]:
    """The extras that a connection needs, in order."""
    needed = {_EXTRA_OF_SCHEME.get(connection.scheme)} | {connection.protocol} & {"bedrock", "litellm"}
    return sorted(extra for extra in needed if extra)


def snippet(provider: str, preset: Preset, name: str) -> str:
    """A connection to a provider as TOML; values of its preset are comments."""
    return "\n".join(_snippet_lines(provider, preset, name))


def _snippet_lines(provider: str, preset: Preset, name: str) -> Iterator[str]:
    yield f"[{dotted(['connections', name])}]"
    yield f"provider = {json.dumps(provider)}"
    if preset.base_url is None:
        yield f"base_url = {json.dumps(preset.example)}    # yours"
    for place in preset.address_fields:
        yield f"{place} = {json.dumps(example_of(provider, place))}    # yours"
    known = {"base_url": preset.base_url, "api_key_env": preset.api_key_env}
    for field, value in known.items():
        if value is not None:
            yield f"# {field} = {json.dumps(value)}"

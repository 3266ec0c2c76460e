"""Refuses parameters that a provider's published schema lacks, before anything is sent.

At a provider's own address only. Other servers of the same protocol have parameters of their own, which pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fairlane.config.connections.connection import Connection
from fairlane_workers.providers.dialect import UnmappableError

FOREIGN_TO_OPENAI = ("top_k", "min_p", "repetition_penalty", "stop_sequences", "max_output_tokens")
"""Parameters of other protocols and servers that chat completions of OpenAI and Azure do not have."""


def leads_to(connection: Connection, provider: str, domain: str) -> bool:
    """Whether a connection is to that provider: it says so, or names nobody and has an address of theirs."""
    if connection.provider is not None:
        return connection.provider == provider
    try:
        host = (urlsplit(connection.base_url).hostname or "").rstrip(".")
    except ValueError:
        return False  # the registry reports the URL's error
    return host == domain or host.endswith(f".{domain}")


def refuse_foreign(params: Mapping[str, Any], names: tuple[str, ...], provider: str) -> None:
    """Raises `UnmappableError` for the first of ``names`` that a run sets."""
    for name in names:
        if params.get(name) is not None:
            raise UnmappableError(
                f"params.{name}: {provider} has no such parameter; leave it out for this model"
            )

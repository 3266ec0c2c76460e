"""Which protocols there are, and how a configured connection becomes a provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx
from pydantic import SecretStr

from fairlane.clock import Clock, SystemClock
from fairlane.connection import Connection
from fairlane.errors import ConfigurationError
from fairlane_workers.providers.auth.authorizer import Authorizer
from fairlane_workers.providers.auth.google import google_token
from fairlane_workers.providers.auth.header_key import HeaderKey
from fairlane_workers.providers.auth.sigv4 import SigV4, region_of
from fairlane_workers.providers.classify import Reading
from fairlane_workers.providers.connecting import open_transport
from fairlane_workers.providers.contract import Provider
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.http_provider import HttpProvider
from fairlane_workers.providers.litellm_provider import LiteLLMProvider
from fairlane_workers.providers.protocols.anthropic_messages import AnthropicMessages
from fairlane_workers.providers.protocols.azure_openai import AzureEmbeddings, AzureOpenAI
from fairlane_workers.providers.protocols.bedrock import Bedrock
from fairlane_workers.providers.protocols.gemini import Gemini, Vertex
from fairlane_workers.providers.protocols.http_endpoint import HttpEndpointDialect
from fairlane_workers.providers.protocols.mistral_chat import MistralChat
from fairlane_workers.providers.protocols.ollama import Ollama
from fairlane_workers.providers.protocols.openai_chat import OpenAIChat
from fairlane_workers.providers.protocols.openai_embeddings import OpenAIEmbeddings
from fairlane_workers.providers.protocols.openai_responses import OpenAIResponses
from fairlane_workers.providers.protocols.replicate import Replicate
from fairlane_workers.transport import Transport

DIALECTS: Mapping[str, Callable[[Connection], Dialect]] = {
    "openai": lambda each: MistralChat() if MistralChat.is_spoken_at(each) else OpenAIChat(),
    "openai_responses": lambda _: OpenAIResponses(),
    "azure_openai": AzureOpenAI,
    "anthropic": lambda connection: AnthropicMessages(connection.api_version),
    "gemini": lambda _: Gemini(),
    "vertex": lambda _: Vertex(),
    "bedrock": lambda _: Bedrock(),
    "replicate": lambda _: Replicate(),
    "ollama": lambda _: Ollama(),
    "http": HttpEndpointDialect.of,
}
EMBEDDINGS: Mapping[str, Callable[[Connection], Dialect]] = {
    "openai": lambda _: OpenAIEmbeddings(),
    "azure_openai": AzureEmbeddings,
}
"""What texts are embedded with, for the protocols that can."""


def build_provider(
    connection_name: str,
    connection: Connection,
    api_key: SecretStr | None,
    *,
    proxy_credentials: SecretStr | None = None,
    transport: Transport | None = None,
    clock: Clock | None = None,
) -> Provider:
    """The provider of a connection, with a transport of its own unless one is given.

    Nothing is opened before the first call; ``aclose`` closes the transport. Raises `ConfigurationError` for
    an unknown protocol, a base URL that is none or holds a password, a key that no header can carry, and what
    `open_transport` refuses.
    """
    field = f"connections.{connection_name}"
    if connection.protocol == "litellm":
        key = _usable_key(f"{field}.api_key_env", api_key)
        return LiteLLMProvider(connection_name, connection, key, clock or SystemClock())
    dialect, embeddings = DIALECTS.get(connection.protocol), EMBEDDINGS.get(connection.protocol)
    if dialect is None:
        known = ", ".join(sorted(DIALECTS))
        raise ConfigurationError(
            f"{field}.protocol", connection.protocol, "no such protocol", f"Known: {known}."
        )
    return HttpProvider(
        connection_name,
        dialect(connection),
        _base_url(f"{field}.base_url", connection.base_url),
        transport or open_transport(connection_name, connection, proxy_credentials),
        clock or SystemClock(),
        authorizer=google_token(connection_name, connection, api_key, proxy_credentials)
        if connection.scheme == "google"
        else _authorizer(connection, _usable_key(f"{field}.api_key_env", api_key)),
        reading=Reading(limits=connection.limit_headers, error_map=connection.error_map),
        headers=connection.headers,
        embeddings=embeddings(connection) if embeddings else None,
    )


def _authorizer(connection: Connection, key: SecretStr | None) -> Authorizer:
    match connection.scheme:
        case "bearer" if key is not None:
            return HeaderKey("authorization", key, "Bearer ")
        case "x-api-key" | "api-key" | "x-goog-api-key" as header if key is not None:
            return HeaderKey(header, key)
        case "sigv4":
            return SigV4(region_of(connection))
        case _:
            return Authorizer()


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

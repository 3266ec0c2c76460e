"""Names a model's call as OpenTelemetry's conventions for generative AI do, so that LLM tools read its span.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.presets import OF_PROTOCOL, PRESETS
from fairlane.core.errors import TemplateError
from fairlane.model.outcome import Outcome, Success
from fairlane.pipeline.rendering import Call
from fairlane_workers.execution.inputs import JobInputs

Attribute: TypeAlias = str | bool | int | float | tuple[str, ...]

PROVIDER_NAMES: Mapping[str, str] = {
    "azure_openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
    "mistral": "mistral_ai",
}
"""Providers whose name in the conventions is another; a provider that they do not list keeps its own."""

_OF_HOST = {urlsplit(preset.base_url).hostname: name for name, preset in PRESETS.items() if preset.base_url}
_FAMILIES = {"openai_responses": "openai"}

_INTEGERS = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
}
_INTEGERS |= {"seed": "seed"}
_NUMBERS = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")


def model_call(inputs: JobInputs) -> Call | None:
    """The call of a model that an attempt makes; ``None`` for a function's, and for one without a request."""
    try:
        call = None if inputs.problem else inputs.call
    except (TemplateError, ValueError):
        return None
    return None if call is None or call.arguments is not None else call


def operation(call: Call) -> str:
    """What the call does, in the words of the conventions."""
    return "chat" if call.inputs is None else "embeddings"


def span_name(call: Call) -> str:
    """The operation and the model."""
    return f"{operation(call)} {_model(call)}"


def attributes(call: Call, outcome: Outcome | None, connection: Connection | None) -> dict[str, Attribute]:
    """What the conventions say of a call, without any text of it; ``connection`` is the one that it names."""
    fields: dict[str, Attribute] = {
        "gen_ai.operation.name": operation(call),
        "gen_ai.request.model": _model(call),
        **_request(call.params),
    }
    if connection is not None:
        fields |= _server(connection)
    if isinstance(outcome, Success):
        fields |= _answer(outcome)
    return fields


def provider_name(connection: Connection) -> str:
    """Who answers: the configured provider, else the one at that address, else whose protocol it is."""
    name = (
        connection.provider
        or OF_PROTOCOL.get(connection.protocol)
        or _OF_HOST.get(urlsplit(connection.base_url).hostname)
        or _FAMILIES.get(connection.protocol, connection.protocol)
    )
    return PROVIDER_NAMES.get(name, name)


def _model(call: Call) -> str:
    return call.model.partition(":")[2]


def _server(connection: Connection) -> dict[str, Attribute]:
    fields: dict[str, Attribute] = {"gen_ai.provider.name": provider_name(connection)}
    address = urlsplit(connection.base_url)
    if address.hostname:
        fields["server.address"] = address.hostname
        fields["server.port"] = address.port or (443 if address.scheme == "https" else 80)
    return fields


def _request(params: Mapping[str, object]) -> dict[str, Attribute]:
    fields: dict[str, Attribute] = {}
    for name, said in _INTEGERS.items():
        if type(value := params.get(name)) is int:
            fields[f"gen_ai.request.{said}"] = value
    for name in _NUMBERS:
        value = params.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            fields[f"gen_ai.request.{name}"] = float(value)
    return fields


def _answer(answer: Success) -> dict[str, Attribute]:
    given = {
        "gen_ai.response.model": answer.model,
        "gen_ai.response.finish_reasons": (answer.finish_reason,) if answer.finish_reason else None,
        "gen_ai.usage.input_tokens": answer.usage.input_tokens,
        "gen_ai.usage.output_tokens": answer.usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": answer.usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": answer.usage.written_tokens,
    }
    return {name: value for name, value in given.items() if value is not None}

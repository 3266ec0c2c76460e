"""Reads a provider's ``config`` as parameters of calls; notes settings of connections, refuses the rest.

Tools, as each provider describes them, get OpenAI's form, which connections take.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlane.apps.promptfoo.reading.places import FILE, Place, names
from fairlane.config.problems import did_you_mean
from fairlane.evaluators.schema import with_lower_case_types

PARAMS = names(
    "temperature max_tokens max_completion_tokens top_p top_k min_p stop stop_sequences seed",
    "frequency_penalty presence_penalty repetition_penalty response_format user reasoning_effort reasoning",
    "verbosity logit_bias thinking service_tier tools tool_choice parallel_tool_calls logprobs top_logprobs",
    "web_search_options metadata store prediction search_domain_filter search_recency_filter search_mode",
    "return_citations return_images return_related_questions search_context_size safety_settings num_ctx",
    "num_predict num_gpu num_thread keep_alive do_sample length_penalty truncation guided_json guided_choice",
    "guided_regex chat_template_kwargs typical_p search_parameters thinkingConfig thinking_config",
    "reasoning_format enable_thinking cachedContent",
)
"""Parameters of a provider's ``config`` that are sent with each call."""

_ALSO = {
    "max_tokens": (
        "max_output_tokens maxOutputTokens max_new_tokens max_gen_len max_length maxTokenCount "
        "max_tokens_to_sample maxTokens"
    ),
    "service_tier": "usage_tier serviceTier",
    "max_completion_tokens": "maxCompletionTokens",
    "top_p": "topP p",
    "top_k": "topK k",
    "stop": "stopSequences",
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
    "repetition_penalty": "repetitionPenalty",
    "response_format": "responseFormat",
    "reasoning_effort": "reasoningEffort",
    "tool_choice": "toolChoice",
    "logit_bias": "logitBias",
    "logprobs": "logProbs",
    "top_logprobs": "topLogProbs",
    "search_parameters": "searchParameters",
    "safety_settings": "safetySettings",
}
"""Other providers' names of the same parameters."""

_NAMES = {other: name for name, others in _ALSO.items() for other in others.split()}

_GROUPS = names(
    "inferenceConfig generationConfig generation_config parameters textGenerationConfig interfaceConfig",
    "additionalModelRequestFields",
)
"""Objects that hold parameters."""

_TRANSFORMS = ("transform", "transformResponse", "responseParser")
_MODES = {"any": "required", "none": "none", "auto": "auto"}

INSTRUCTIONS = frozenset(("instructions", "systemPrompt", "system", "systemInstruction", "system_prompt"))
"""Names of the system prompt."""

CONNECTION = names(
    "apiKey apiKeyEnvar apiKeyRequired apiBaseUrl apiHost organization headers baseUrl baseURL basePath",
    "apiVersion deploymentId region projectId host accountId accessKeyId secretAccessKey sessionToken",
    "profile credentials endpoint apiType azureClientId azureClientSecret azureTenantId tenantId",
    "workspaceUrl isPayPerToken publisher anthropicVersion anthropic_version apiKeySecret keyFilename",
    "inferenceModelType modelType contentType acceptType useOpenApi accountName timeout adaline apiBase",
    "requestTimeout providerType gateway authToken awsRegion apiEndpoint projectUrl deploymentName spaceId",
    "modelId projectName",
)
"""Settings of addresses and credentials, which connections have."""

HARMLESS = names(
    "cost inputCost outputCost maxRetries showThinking omitDefaults debug verbose timeoutMs websocketTimeout",
    "delay retries stream label tags usage cache enableStreaming includeUsage callApi workflowId workflow_id",
    "telemetry isReasoningModel usageContext strict_mode maxConcurrency",
)
"""Settings that change no answer."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """A parsed ``config``: ``values`` to send, ``instructions`` before prompts, a ``transform`` of
    outputs.
    """

    values: Mapping[str, Any]
    instructions: str | None = None
    transform: str | None = None
    legacy: bool = False
    affixes: tuple[str, str] = ("", "")


def read_parameters(identity: str, config: Mapping[str, Any], place: Place) -> Parameters:
    """Parse a ``config``; errors become problems."""
    values: dict[str, Any] = {}
    said: list[str] = []
    affixes = ("", "")
    for name, value in _flat(config, place):
        if name == "prompt" and isinstance(value, Mapping):
            affixes = (str(value.get("prefix") or ""), str(value.get("suffix") or ""))
        elif name in INSTRUCTIONS:
            said.extend(_instructions(value, place / name))
        elif name not in (*_TRANSFORMS, "functions", "function_call"):
            values.update(_one(identity, name, value, place / name))
    legacy = "functions" in config and "tools" not in config
    if legacy:
        values.update(_functions(config, place))
    transform = next((config[name] for name in _TRANSFORMS if config.get(name)), None)
    if not isinstance(transform, str | None):
        (place / "transform").refuse("a transform is a text")
        transform = None
    return Parameters(values, "\n".join(said) or None, transform, legacy, affixes)


def _flat(config: Mapping[str, Any], place: Place) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if name in _GROUPS and isinstance(value, Mapping):
            yield from _flat(value, place / name)
        elif name in ("passthrough", "extra_body") and isinstance(value, Mapping):
            yield from ((f"={inner}", each) for inner, each in value.items())
        else:
            yield name, value


def _one(identity: str, name: str, value: Any, place: Place) -> Mapping[str, Any]:
    if name.startswith("="):
        return {name[1:]: value}
    if name == "toolConfig" and isinstance(value, Mapping):
        return _tool_config(value, place)
    if name == "modalities" and value == ["text"]:
        return {}
    if name in HARMLESS or value is None:
        return {}
    if name in CONNECTION:
        place.note(
            f"{name} of {identity} is left out: fairlane.toml says where and as whom a connection calls"
        )
        return {}
    known = _NAMES.get(name, name)
    if isinstance(value, str) and value.startswith(FILE):
        value = _of_file(value, place)
    if known == "tools":
        return _tools(value, place)
    if known == "tool_choice":
        return {known: _choice(value)}
    if (shape := _schema(name, value)) is not None:
        return {"response_format": shape}
    if name in ("responseMimeType", "response_mime_type"):
        return {"response_format": {"type": "json_object"}} if value == "application/json" else {}
    if known == "response_format":
        value = _format(value, place)
    if known not in PARAMS:
        near = did_you_mean(name, sorted(PARAMS))
        remedy = near or "put it under passthrough to send it as it is"
        place.refuse(f"the parameter {name} is not supported: {remedy}")
        return {}
    if isinstance(value, str) and "{{" in value:
        place.refuse("parameters are no templates: write the value")
        return {}
    return {known: value}


def _of_file(reference: str, place: Place) -> Any:
    if "{{" in reference:
        place.refuse("parameters are no templates: write the value")
        return None
    return place.referred(reference)[0]


def _format(value: Any, place: Place) -> Any:
    if isinstance(value, str):
        return {"type": value}
    if not isinstance(value, Mapping):
        return value
    schema = value.get("schema", value.get("json_schema"))
    if isinstance(schema, str) and schema.startswith(FILE):
        schema = _of_file(schema, place)
    inner = schema if isinstance(schema, Mapping) else {}
    if value.get("type") == "json_schema" and "schema" not in inner:
        name = str(value.get("name", "answer"))
        return {"type": "json_schema", "json_schema": {"name": name, "schema": inner}}
    return {"type": "json_schema", "json_schema": inner} if value.get("type") == "json_schema" else value


def _tools(value: Any, place: Place) -> Mapping[str, Any]:
    tools = tools_of(value)
    if tools is None:
        place.refuse("tools are a list of objects")
        return {}
    return {"tools": tools} if tools else {}


def _tool_config(value: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    """Bedrock's tools with their choice, or Gemini's choice."""
    found: dict[str, Any] = {}
    if "tools" in value:
        found.update(_tools((place / "tools").referred(value["tools"])[0], place / "tools"))
    if "toolChoice" in value:
        found["tool_choice"] = _choice(value["toolChoice"])
    calling = value.get("functionCallingConfig", value.get("function_calling_config"))
    if isinstance(calling, Mapping):
        found["tool_choice"] = _MODES.get(str(calling.get("mode", "auto")).lower(), "auto")
    return found


def _functions(config: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    """OpenAI's older ``functions`` as tools."""
    listed, _ = (place / "functions").referred(config["functions"])
    found = dict(_tools(listed, place / "functions"))
    if isinstance(call := config.get("function_call"), str | Mapping):
        found["tool_choice"] = _choice(call)
    return found


def _instructions(value: Any, place: Place) -> Iterator[str]:
    if isinstance(value, str) and value.startswith(FILE):
        path = place.find(value)
        value = place.text(path) if path else None
    if isinstance(value, Mapping):
        parts = value.get("parts", [])
        value = "\n".join(str(p.get("text", "")) for p in parts if isinstance(p, Mapping))
    if isinstance(value, str) and value.strip():
        yield value
    elif value is not None:
        place.refuse("this is no text")


def _schema(name: str, value: Any) -> Mapping[str, Any] | None:
    """Gemini's schema of an answer in OpenAI's form."""
    if name not in ("responseSchema", "response_schema", "outputSchema") or not isinstance(value, Mapping):
        return None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": with_lower_case_types(value)}}


def _choice(value: Any) -> Any:
    match value:
        case {"type": "any"} | "any":
            return "required"
        case {"type": "auto" | "none" as word}:
            return word
        case {"auto": _}:
            return "auto"
        case {"any": _}:
            return "required"
        case {"type": "tool", "name": str(name)} | {"tool": {"name": str(name)}}:
            return {"type": "function", "function": {"name": name}}
        case {"name": str(name), **rest} if not rest:
            return {"type": "function", "function": {"name": name}}
    return value


def tools_of(value: Any) -> list[dict[str, Any]] | None:
    """The tools of a list, functions in OpenAI's form. ``None`` if it is no list of tools.

    A tool of a provider's own, such as a search, stays as it is: a protocol that lacks it refuses it.
    """
    if not isinstance(value, list):
        return None
    found: list[dict[str, Any]] = []
    for each in value:
        if not isinstance(each, Mapping):
            return None
        declared = each.get("functionDeclarations", each.get("function_declarations"))
        if isinstance(declared, list):
            found.extend(_declared(one) or dict(one) for one in declared)
        else:
            found.append(_tool(each) or dict(each))
    return found


def _tool(tool: Mapping[str, Any]) -> dict[str, Any] | None:
    match tool:
        case {"type": "function", "function": dict(function)} if function.get("name"):
            return {"type": "function", "function": dict(function)}
        case {"function": dict(function)} if function.get("name"):
            return {"type": "function", "function": dict(function)}
        case {"toolSpec": {"name": str(name), **rest}}:
            schema = rest.get("inputSchema")
            inner = schema.get("json", schema) if isinstance(schema, Mapping) else None
            return _function(name, rest.get("description"), inner)
        case {"name": str(name), "input_schema": dict(schema), **rest}:
            return _function(name, rest.get("description"), schema)
        case {"type": "custom" | "function", "name": str(name), **rest}:
            return _function(name, rest.get("description"), rest.get("parameters", rest.get("input_schema")))
    return None if "type" in tool else _declared(tool)


def _declared(tool: Any) -> dict[str, Any] | None:
    if not isinstance(tool, Mapping) or not isinstance(name := tool.get("name"), str):
        return None
    return _function(name, tool.get("description"), tool.get("parameters", tool.get("parameter_definitions")))


def _function(name: str, description: Any, schema: Any) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name}
    if isinstance(description, str):
        function["description"] = description
    if isinstance(schema, Mapping):
        function["parameters"] = with_lower_case_types(schema)
    return {"type": "function", "function": function}

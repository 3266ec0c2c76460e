"""Reads a request for Gemini, and rejects unknown names, as Google's JSON reader does."""

from collections.abc import Collection, Mapping
from typing import Any

from fairlane.evaluators.schema import with_lower_case_types
from fairlane.lab.simulator.wire.dialect import Call, OfferedTool, RequestError
from fairlane.lab.simulator.wire.reading import is_number, last_question, read_positive

_FIELDS = frozenset(
    {
        *("contents", "systemInstruction", "generationConfig", "tools", "toolConfig", "safetySettings"),
        *("cachedContent", "labels", "serviceTier", "store", "model"),
    }
)
_GENERATION = frozenset(
    {
        *("maxOutputTokens", "temperature", "topP", "topK", "seed", "stopSequences", "candidateCount"),
        *("presencePenalty", "frequencyPenalty", "responseMimeType", "responseSchema", "responseJsonSchema"),
        *("thinkingConfig", "responseModalities", "responseLogprobs", "logprobs", "mediaResolution"),
        *("speechConfig", "imageConfig"),
    }
)
_TOOLS = frozenset(
    {
        *("functionDeclarations", "googleSearch", "googleSearchRetrieval", "codeExecution", "urlContext"),
        *("googleMaps", "computerUse", "retrieval", "fileSearch"),
    }
)
_DECLARATION = frozenset(
    {"name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema"}
)
_TOOL_CONFIG = frozenset({"functionCallingConfig", "retrievalConfig"})
_CALLING = frozenset({"mode", "allowedFunctionNames", "streamFunctionCallArguments"})
_NUMBERS = (("temperature", 2.0), ("topP", 1.0), ("topK", 1e6))
_OPENAIS = {
    **{name: name for name in ("temperature", "seed", "logprobs")},
    **{"topP": "top_p", "topK": "top_k", "presencePenalty": "presence_penalty"},
    **{"frequencyPenalty": "frequency_penalty", "responseSchema": "response_format"},
    "responseJsonSchema": "response_format",
}
_MODES = ("AUTO", "ANY", "NONE", "VALIDATED")


def read_call(payload: Any, path: Mapping[str, str]) -> Call:
    """The call in a request's JSON; the path names its model and its method. Raises `RequestError`."""
    if not isinstance(payload, dict):
        raise RequestError("Invalid JSON payload received. The body is no object.")
    payload = _known(payload, _FIELDS, "")
    streams = path.get("method") == "streamGenerateContent"
    if streams and path.get("alt") != "sse":
        raise RequestError("alt: only alt=sse streams events here")
    generation = _known(_object(payload, "generationConfig"), _GENERATION, "generation_config")
    _check(generation)
    contents = payload.get("contents")
    if not isinstance(contents, list) or not contents:
        raise RequestError("* GenerateContentRequest.contents: contents is not specified")
    conversation = [_content(f"contents[{number}]", each) for number, each in enumerate(contents)]
    system = payload.get("systemInstruction")
    texts = [] if system is None else [_content("system_instruction", system)[1]]
    return Call(
        model=path["model"],
        prompt="\n".join([*texts, *(text for _, text in conversation)]),
        question=last_question(conversation),
        max_tokens=read_positive(generation, "maxOutputTokens"),
        stream=streams,
        schema=_schema(generation),
        tools=_tools(payload),
    )


def generation_parameters(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a request, by OpenAI's names; the bound of the answer's length is none of them."""
    generation = payload.get("generationConfig") or payload.get("generation_config") or {}
    fields = {_in_camel_case(name): value for name, value in generation.items()}
    return {_OPENAIS[name]: value for name, value in fields.items() if name in _OPENAIS}


def content_text(place: str, content: Any) -> str:
    """The text of one content. Raises `RequestError`."""
    return _content(place, content)[1]


def _known(given: Mapping[str, Any], names: Collection[str], place: str) -> dict[str, Any]:
    """The fields by their JSON names; Google also accepts the snake-case names of its protocol buffers."""
    fields = {_in_camel_case(name): value for name, value in given.items()}
    for name in fields:
        if name not in names:
            at = f" at '{place}'" if place else ""
            raise RequestError(
                f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.'
            )
    return fields


def _in_camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _object(payload: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = payload.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"Invalid value at '{name}': an object is required")
    return value


def _content(place: str, content: Any) -> tuple[str, str]:
    if not isinstance(content, dict):
        raise RequestError(f"Invalid value at '{place}': an object is required")
    role, parts = content.get("role", "user"), content.get("parts")
    if role not in ("user", "model") and place != "system_instruction":
        raise RequestError("Please use a valid role: user, model.")
    if not isinstance(parts, list) or not parts:
        raise RequestError(f"* GenerateContentRequest.{place}.parts: contents.parts must not be empty.")
    return role, "".join(_text(place, part) for part in parts)


def _text(place: str, part: Any) -> str:
    text = part.get("text", "") if isinstance(part, dict) else None
    if not isinstance(text, str):
        raise RequestError(f"Invalid value at '{place}.parts': a text is required")
    return text


def _check(generation: dict[str, Any]) -> None:
    for name, most in _NUMBERS:
        value = generation.get(name)
        if value is not None and not is_number(value, 0, most):
            raise RequestError(f"Invalid value at 'generation_config.{name}': a number from 0 to {most:g}")
    seed, stops = generation.get("seed"), generation.get("stopSequences", [])
    if seed is not None and type(seed) is not int:
        raise RequestError("Invalid value at 'generation_config.seed': a whole number is required")
    if not isinstance(stops, list) or len(stops) > 5 or not all(isinstance(word, str) for word in stops):
        raise RequestError("Invalid value at 'generation_config.stop_sequences': at most 5 texts")


def _schema(generation: Mapping[str, Any]) -> dict[str, Any] | None:
    given = [name for name in ("responseSchema", "responseJsonSchema") if generation.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise RequestError("response_schema and response_json_schema must not both be set")
    if generation.get("responseMimeType") != "application/json":
        raise RequestError("response_schema needs the response_mime_type application/json")
    schema = generation[given[0]]
    if not isinstance(schema, dict):
        raise RequestError(f"Invalid value at 'generation_config.{given[0]}': an object is required")
    return with_lower_case_types(schema) if given[0] == "responseSchema" else schema


def _tools(payload: Mapping[str, Any]) -> tuple[OfferedTool, ...]:
    """The functions that ``toolConfig`` lets the model call."""
    tools = payload.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RequestError("Invalid value at 'tools': a list of objects is required")
    known = [_known(tool, _TOOLS, "tools[]") for tool in tools]
    declared = [
        _declared(each) for tool in known for each in _listed(tool.get("functionDeclarations"), "tools")
    ]
    outer = _known(_object(payload, "toolConfig"), _TOOL_CONFIG, "tool_config")
    config = _known(_object(outer, "functionCallingConfig"), _CALLING, "function_calling_config")
    mode, only = config.get("mode", "AUTO"), _listed(config.get("allowedFunctionNames"), "tool_config")
    if mode not in _MODES:
        raise RequestError(f"Invalid value at 'tool_config.function_calling_config.mode': {mode!r}")
    if only and mode not in ("ANY", "VALIDATED"):
        raise RequestError("allowed_function_names should be set only when the mode is ANY.")
    if mode == "ANY" and not declared:
        raise RequestError("Function calling config is set without function_declarations.")
    offered = [tool for tool in declared if not only or tool.name in only]
    if only and len(offered) != len(only):
        raise RequestError("allowed_function_names names a function that is not declared.")
    return () if mode == "NONE" else tuple(offered)


def _listed(value: Any, place: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError(f"Invalid value at '{place}': a list is required")
    return value


def _declared(function: Any) -> OfferedTool:
    if not isinstance(function, dict) or not isinstance(name := function.get("name"), str) or not name:
        raise RequestError("* GenerateContentRequest.tools: a function declaration needs a name")
    function = _known(function, _DECLARATION, "tools[].function_declarations[]")
    schema = function.get("parametersJsonSchema")
    if schema is None:
        schema = with_lower_case_types(function.get("parameters") or {"type": "OBJECT"})
    if not isinstance(schema, dict):
        raise RequestError("Invalid value at 'tools[].function_declarations[].parameters'")
    return OfferedTool(name, schema)

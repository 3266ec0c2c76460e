"""Builds the body of a Responses request from a run's parameters, which are those of chat completions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fairlane.config.connections.connection import ASKS_FOR_NOTHING
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.requests.parameters import Parameters

_UNKNOWN = (
    *("stop", "seed", "top_k", "n", "logit_bias", "presence_penalty", "frequency_penalty", "logprobs"),
    *("modalities", "prediction", "audio", "web_search_options", "functions", "function_call"),
)
"""Parameters of chat completions that ``CreateResponse`` lacks."""

_MOVED = frozenset(
    {*_UNKNOWN, "messages", "tools", "tool_choice", "reasoning_effort", "verbosity", "stream_options"}
)


def request_body(request: Request) -> dict[str, Any]:
    """The JSON body. Raises `UnmappableError` for parameters that the API lacks.

    What the parameters say in the names of responses (``max_output_tokens``, ``text``, ``reasoning`` …) goes
    as it is and before what is translated. ``instructions`` come before the messages.
    """
    params = request.params
    _reject_unsupported(params)
    given = Parameters.of({name: value for name, value in params.items() if name not in _MOVED})
    translated = {
        "max_output_tokens": given.max_tokens,
        "temperature": given.temperature,
        "top_p": given.top_p,
        "tools": _tools(params.get("tools")),
        "tool_choice": _flattened(params.get("tool_choice")),
    }
    body = {name: value for name, value in translated.items() if value is not None}
    body |= given.rest
    for name, of_translation in (
        ("text", {"format": _format(params.get("response_format")), "verbosity": params.get("verbosity")}),
        ("reasoning", {"effort": params.get("reasoning_effort")}),
        ("stream_options", _stream_options(params) if request.stream else {}),
    ):
        _merge(body, name, of_translation)
    fixed = {"model": request.model, "input": input_items(request.messages), "stream": request.stream}
    return {**body, **fixed}


def _reject_unsupported(params: Mapping[str, Any]) -> None:
    for name in _UNKNOWN:
        value = params.get(name)
        if value is not None and not (name in ASKS_FOR_NOTHING and value == ASKS_FOR_NOTHING[name]):
            raise UnmappableError(
                f'params.{name}: responses do not know it; leave it out, or use protocol "openai"'
            )
    if params.get("background"):
        raise UnmappableError("params.background: the worker waits for the answer; leave it out")


def _merge(body: dict[str, Any], name: str, translated: Mapping[str, Any]) -> None:
    """Merge translated values under ``name``; the run's own take precedence, and its ``None`` drops them."""
    settings = body.get(name, {})
    if isinstance(settings, dict):
        settings = {key: value for key, value in translated.items() if value is not None} | settings
    if settings:
        body[name] = settings
    else:
        body.pop(name, None)


def _format(response_format: object) -> dict[str, Any] | None:
    """OpenAI's ``json_schema`` without the nesting of chat completions."""
    if not isinstance(response_format, dict):
        return None
    settings = {name: value for name, value in response_format.items() if name != "json_schema"}
    schema = response_format.get("json_schema")
    return {**settings, "name": "answer", **schema} if isinstance(schema, dict) else settings


def _tools(tools: object) -> object:
    """Functions without nesting, and not strict by default, as in chat completions; other tools unchanged."""
    if not isinstance(tools, list):
        return tools
    return [_flattened(tool, strict=False) for tool in tools]


def _flattened(value: object, **defaults: Any) -> object:
    match value:
        case {"function": Mapping() as function}:
            return {"type": "function", **defaults, **function}
        case {"type": "custom", "custom": {"format": {"grammar": Mapping() as grammar}, **rest}}:
            return {"type": "custom", **rest, "format": {"type": "grammar", **grammar}}
        case {"type": "custom", "custom": Mapping() as function}:
            return {"type": "custom", **function}
        case {"type": "allowed_tools", "allowed_tools": {"tools": list(tools), **allowed}}:
            return {"type": "allowed_tools", **allowed, "tools": [_flattened(tool) for tool in tools]}
    return value


def _stream_options(params: Mapping[str, Any]) -> dict[str, Any]:
    """The options without ``include_usage``: the API always sends usage."""
    options = params.get("stream_options")
    if not isinstance(options, dict):
        return {}
    return {name: value for name, value in options.items() if name != "include_usage"}


_OF_A_MESSAGE = frozenset({"type", "id", "status", "role", "content", "phase"})
"""Fields of a message in that API, which rejects all others: an SDK's dump of a chat message has more."""


def input_items(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The items that say what ``messages`` say: texts, images, files, calls of tools and their results."""
    custom = list[object]()
    return [item for message in messages for item in _items(message, custom)]


def _items(message: Mapping[str, Any], custom: list[object]) -> Iterator[dict[str, Any]]:
    """The items of one message. ``custom``: ids of the calls of custom tools so far."""
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        output = content if isinstance(content, str) else _parts(content, "input_text")
        key = message.get("tool_call_id")
        kind = "custom_tool_call_output" if key in custom else "function_call_output"
        yield {"type": kind, "call_id": key, "output": output}
        return
    if role is None:
        yield dict(message)
        return
    calls, refusal = message.get("tool_calls"), message.get("refusal")
    if content is None and isinstance(refusal, str):
        content = [{"type": "refusal", "refusal": refusal}]
    if content is not None:  # a message that says nothing is rejected
        kind = "output_text" if role == "assistant" else "input_text"
        kept = {name: value for name, value in message.items() if name in _OF_A_MESSAGE and value is not None}
        yield {**kept, "content": _parts(content, kind)}
    for call in calls if isinstance(calls, list) else ():
        if isinstance(given := call.get("custom"), Mapping):
            custom.append(call.get("id"))
            yield {"type": "custom_tool_call", "call_id": call.get("id"), **given}
        else:
            yield {"type": "function_call", "call_id": call.get("id"), **(call.get("function") or {})}


def _parts(content: object, text_kind: str) -> Any:
    return [_part(part, text_kind) for part in content] if isinstance(content, list) else content


def _part(part: object, text_kind: str) -> object:
    match part:
        case {"type": "text", "text": text}:
            return {"type": text_kind, "text": text}
        case {"type": "image_url", "image_url": {"url": url, **rest}}:
            return {"type": "input_image", "image_url": url, "detail": rest.get("detail") or "auto"}
        case {"type": "file", "file": Mapping() as file}:
            return {"type": "input_file", **file}
    return part

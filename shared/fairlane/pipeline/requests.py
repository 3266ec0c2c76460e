"""Reads a request that a row holds in the form of OpenAI's API: chat completions, embeddings, responses.

A request for a response becomes a chat if its connection does not take responses: every protocol has chats.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

CHAT_URL, EMBEDDINGS_URL, RESPONSES_URL = "/v1/chat/completions", "/v1/embeddings", "/v1/responses"

URLS = (CHAT_URL, EMBEDDINGS_URL, RESPONSES_URL)
_API = "/v1/"

URL_FIELD = "url"
"""The field of a row that names the API of its request, as in batch files; without one it is a chat."""


_SAME = frozenset(
    {
        *("temperature", "top_p", "parallel_tool_calls", "metadata", "user", "service_tier", "store"),
        *("safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    }
)
_CHANGES_NO_TEXT = frozenset({"include", "stream_options", "background"})
"""Parameters for parts of an answer besides its text and calls, or for how it arrives."""

_TEXTS = ("input_text", "output_text", "text")


class MalformedRequest(ValueError):
    """A request that cannot be sent; the message names the part and says why."""


class Asked(NamedTuple):
    """A parsed request: ``messages``, or ``inputs`` to embed, and its own parameters."""

    messages: list[dict[str, Any]]
    params: dict[str, Any]
    inputs: tuple[str, ...] | None = None


def read_request(url: object, body: object, *, as_responses: bool) -> Asked:
    """The request in ``body``. ``as_responses``: the connection takes requests for responses as they are.

    Another connection gets them as a chat. Raises `MalformedRequest` that names the part of the body which is
    malformed, or which chats do not have.
    """
    if isinstance(url, str) and url.startswith(_API) and url not in URLS:
        others = "a function of yours (task=) can call others"
        raise MalformedRequest(f"its {URL_FIELD!r} is {url!r}, not one of {', '.join(URLS)}; {others}")
    body = body_of(body)
    if url == EMBEDDINGS_URL:
        return Asked([], _without(body, "input"), inputs_of(body.get("input")))
    if url == RESPONSES_URL:
        return _native(body) if as_responses else Asked(*_as_chat(body))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise MalformedRequest("it has no messages")
    chat = _objects(messages, "messages")
    for place, message in enumerate(chat):
        if "role" not in message:
            named = " (from and value are role and content here)" if "from" in message else ""
            raise MalformedRequest(f"messages[{place}] has no role{named}")
    return Asked(chat, _without(body, "messages"))


def body_of(given: object) -> Mapping[str, Any]:
    """The request that a row's field holds: an object, a list of messages, or either as a text of JSON.

    Raises `MalformedRequest` for anything else.
    """
    read = _parsed(given) if isinstance(given, str) else given
    if isinstance(read, list):
        return {"messages": read}
    if not isinstance(read, Mapping):
        raise MalformedRequest(f"it is no object and no list of messages, but a {type(read).__name__}")
    return read


def _parsed(text: str) -> object:
    try:
        read = json.loads(text)
        json.dumps(read, allow_nan=False, ensure_ascii=False).encode()  # raises if it cannot be sent
    except (ValueError, RecursionError):
        raise MalformedRequest("it is no object, but a text that is no JSON") from None
    return read


def inputs_of(given: object) -> tuple[str, ...]:
    """The texts to embed. Raises `MalformedRequest` for other input, like numbers of tokens."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise MalformedRequest("input: a text or a list of texts is expected")
    if not all(isinstance(text, str) and text for text in texts):
        raise MalformedRequest(
            "input: texts that are not empty are expected; numbers of tokens are not taken"
        )
    return tuple(texts)


def _native(body: Mapping[str, Any]) -> Asked:
    given = body.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise MalformedRequest("input: a text or a list of items is expected")
    return Asked(_objects(given, "input"), _without(body, "input"))


def _objects(given: list[Any], where: str) -> list[dict[str, Any]]:
    """The items of a list that are all objects. Raises `MalformedRequest` for another."""
    for place, each in enumerate(given):
        if not isinstance(each, Mapping):
            raise MalformedRequest(f"{where}[{place}] is no object")
    return [dict(each) for each in given]


def _without(body: Mapping[str, Any], content: str) -> dict[str, Any]:
    """The parameters of a request: the run sets its model, and the connection whether it streams."""
    return {name: value for name, value in body.items() if name not in ("model", "stream", content)}


def _as_chat(body: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages and parameters of a request for a response.

    Raises `MalformedRequest` that names a part which chats lack, such as a tool that the provider runs.
    """
    messages = [*_instructions(body.get("instructions")), *_messages(body.get("input"))]
    return messages, dict(_params(body))


def _instructions(given: object) -> Iterator[dict[str, Any]]:
    if isinstance(given, str) and given:
        yield {"role": "system", "content": given}
    elif given:
        raise MalformedRequest("instructions: a text is expected")


def _messages(given: object) -> list[dict[str, Any]]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise MalformedRequest("input: a text or a list of items is expected")
    messages: list[dict[str, Any]] = []
    for number, item in enumerate(given):
        place = f"input[{number}]"
        match item:
            case {"type": "function_call", "name": str(name), "arguments": str(arguments), "call_id": key}:
                call = {
                    "id": key,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                messages[-1].setdefault("tool_calls", []).append(call)
            case {"type": "function_call_output", "call_id": key, "output": output}:
                content = _content(output, f"{place}.output")
                messages.append({"role": "tool", "tool_call_id": key, "content": content})
            case {"type": "reasoning"}:
                continue  # a chat has no place for earlier reasoning
            case {"role": str(role), "content": content, **rest} if rest.get("type", "message") == "message":
                messages.append({"role": role, "content": _content(content, f"{place}.content")})
            case _:
                raise MalformedRequest(f"{place}: a chat cannot say it; use a connection of openai_responses")
    return messages


def _content(given: object, place: str) -> str | list[dict[str, Any]]:
    """A message's content: a text if it has only one, else parts."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise MalformedRequest(f"{place}: a text or a list of parts is expected")
    parts = [_part(part, f"{place}[{number}]") for number, part in enumerate(given)]
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(part: object, place: str) -> dict[str, Any]:
    match part:
        case {"type": kind, "text": str(text)} if kind in _TEXTS:
            return {"type": "text", "text": text}
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url), **rest}:
            detail = {"detail": rest["detail"]} if rest.get("detail") else {}
            return {"type": "image_url", "image_url": {"url": url, **detail}}
        case {"type": "input_file", **rest} if rest.keys() & {"file_id", "file_data"}:
            return {"type": "file", "file": dict(rest)}
        case {"type": "input_audio", "input_audio": audio}:
            return {"type": "input_audio", "input_audio": audio}
    raise MalformedRequest(f"{place}: a chat has no such part; use a connection of openai_responses")


def _params(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in body.items():
        if value is None or name in _CHANGES_NO_TEXT or name in ("model", "stream", "input", "instructions"):
            continue
        if name in _SAME:
            yield name, value
        elif name == "max_output_tokens":
            yield "max_completion_tokens", value
        elif name == "top_logprobs":
            yield from {"logprobs": True, "top_logprobs": value}.items() if value else ()
        elif name == "text":
            yield from _text(value)
        elif name == "reasoning":
            yield from _of(
                value, name, {"effort": "reasoning_effort"}, ignored=("summary", "generate_summary")
            )
        elif name == "tools":
            yield name, [_tool(tool, f"tools[{number}]") for number, tool in enumerate(_listed(value, name))]
        elif name == "tool_choice":
            yield name, _tool_choice(value)
        elif (name, value) != ("truncation", "disabled"):
            raise MalformedRequest(f"{name}: chats do not have it; use a connection of openai_responses")


def _text(value: object) -> Iterator[tuple[str, Any]]:
    yield from _of(value, "text", {"verbosity": "verbosity"}, ignored=("format",))
    wanted = value.get("format") if isinstance(value, Mapping) else None
    match wanted:
        case None | {"type": "text"}:
            return
        case {"type": "json_object"}:
            yield "response_format", {"type": "json_object"}
        case {"type": "json_schema", **schema}:
            yield "response_format", {"type": "json_schema", "json_schema": schema}
        case _:
            raise MalformedRequest('text.format: "text", "json_object" or "json_schema" is expected')


def _of(
    value: object, name: str, names: Mapping[str, str], *, ignored: tuple[str, ...]
) -> Iterator[tuple[str, Any]]:
    """The settings of an object under their names in chats."""
    if not isinstance(value, Mapping):
        raise MalformedRequest(f"{name}: an object is expected")
    for key, given in value.items():
        if key in names and given is not None:
            yield names[key], given
        elif key not in ignored and given is not None:
            raise MalformedRequest(
                f"{name}.{key}: chats do not have it; use a connection of openai_responses"
            )


def _tool(tool: object, place: str) -> dict[str, Any]:
    given = dict(tool) if isinstance(tool, Mapping) else {}
    kind = given.pop("type", None)
    if kind not in ("function", "custom") or not isinstance(given.get("name"), str):
        raise MalformedRequest(f"{place}: only the provider can run it; use a connection of openai_responses")
    return {"type": kind, kind: {name: value for name, value in given.items() if value is not None}}


def _tool_choice(choice: object) -> object:
    match choice:
        case {"type": "function" | "custom" as kind, "name": str(name)}:
            return {"type": kind, kind: {"name": name}}
        case str():
            return choice
    raise MalformedRequest(
        "tool_choice: a text or a function is expected; use a connection of openai_responses"
    )


def _listed(value: object, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedRequest(f"{name}: a list is expected")
    return value

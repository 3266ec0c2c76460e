"""OpenAI's responses, as the simulated provider speaks them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat, check_sampling, error_of
from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    OfferedTool,
    Problem,
    Reply,
    RequestError,
    Stamp,
    halves,
    write_event,
    write_json,
)
from fairlane.lab.simulator.wire.reading import (
    last_question,
    named,
    read_flag,
    read_model,
    read_positive,
    read_text,
)


class OpenAIResponses(OpenAIChat):
    """Responses; streams are named events, and the last one carries the whole response."""

    paths: ClassVar[tuple[str, ...]] = ("/v1/responses",)

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """Rejects each request that OpenAI rejects."""
        if not isinstance(payload, dict):
            raise RequestError("the body must be a JSON object")
        for name in payload:
            if name not in _KNOWN:
                raise RequestError(f"Unknown parameter: '{name}'.")
        model = read_model(payload)
        check_sampling(payload)
        instructions = payload.get("instructions")
        system = [] if instructions is None else [("system", read_text(instructions, "instructions"))]
        conversation = [*system, *_conversation(payload.get("input"))]
        options = _object(payload, "stream_options")
        if unknown := set(options) - {"include_obfuscation"}:
            raise RequestError(f"Unknown parameter: 'stream_options.{min(unknown)}'.")
        return Call(
            model=model,
            prompt="\n".join(text for _, text in conversation),
            question=last_question(conversation),
            max_tokens=_max_tokens(payload),
            stream=read_flag(payload, "stream"),
            schema=_schema(_object(_object(payload, "text"), "format")),
            tools=_chosen(_tools(payload.get("tools")), payload.get("tool_choice")),
        )

    def parameters(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Dialect.parameters`: a schema is in ``text``."""
        form = payload.get("text") or {}
        return {**payload, "response_format": form.get("format") if isinstance(form, dict) else None}

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """See `Dialect.completion`."""
        return write_json(_response(call, stamp, reply))

    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        """Named events from ``response.created`` to the event that carries the whole response."""
        write = _EventWriter()
        begun = _response(call, stamp)
        opening = write("response.created", response=begun) + write("response.in_progress", response=begun)
        if reply.tool is None:
            frames = _text_frames(write, reply, pieces, stamp)
        else:
            frames = [b"".join(_tool_events(write, reply, stamp)), *(b"" for _ in pieces[1:])]
        frames[0] = opening + frames[0]
        ended = _response(call, stamp, reply)
        frames[-1] += write(f"response.{ended['status']}", response=ended)
        return frames

    def stream_error(self, problem: Problem) -> bytes:
        """An event named ``error``."""
        return _EventWriter()("error", error=error_of(problem))


LEAST_OUTPUT = 16
"""OpenAI rejects ``max_output_tokens`` below this."""

_KNOWN = frozenset(
    {
        *("model", "input", "instructions", "stream", "stream_options", "max_output_tokens", "temperature"),
        *("top_p", "text", "tools", "tool_choice", "reasoning", "metadata", "store", "user", "include"),
        *("parallel_tool_calls", "previous_response_id", "service_tier", "truncation", "top_logprobs"),
        *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "background", "max_tool_calls"),
    }
)
_ROLES = ("system", "developer", "user", "assistant")


class _EventWriter:
    """Writes events with sequence numbers from 0."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, kind: str, **fields: Any) -> bytes:
        number, self._next = self._next, self._next + 1
        return write_event({"type": kind, "sequence_number": number, **fields}, kind)


def _text_frames(
    write: Callable[..., bytes], reply: Reply, pieces: Sequence[str], stamp: Stamp
) -> list[bytes]:
    """A message whose text is streamed in pieces, one block of events each."""
    done = _item(reply, stamp)
    part = done["content"][0]
    begun = {**done, "content": [], "status": "in_progress"}
    item = {"item_id": done["id"], "output_index": 0, "content_index": 0}
    head = write("response.output_item.added", output_index=0, item=begun)
    head += write(
        "response.content_part.added", **item, part={**part, part["type"].removeprefix("output_"): ""}
    )
    name, whole = "output_text", {"text": reply.text, "logprobs": []}
    if reply.refused:
        name, whole = "refusal", {"refusal": reply.text}
    logprobs: dict[str, Any] = {} if reply.refused else {"logprobs": []}
    frames = [write(f"response.{name}.delta", **item, delta=piece, **logprobs) for piece in pieces]
    frames[0] = head + frames[0]
    frames[-1] += write(f"response.{name}.done", **item, **whole)
    frames[-1] += write("response.content_part.done", **item, part=part)
    frames[-1] += write("response.output_item.done", output_index=0, item=done)
    return frames


def _tool_events(write: Callable[..., bytes], reply: Reply, stamp: Stamp) -> Iterator[bytes]:
    """A tool call whose arguments are streamed in two parts."""
    done = _item(reply, stamp)
    arguments: str = done["arguments"]
    item = {"item_id": done["id"], "output_index": 0}
    begun = {**done, "arguments": "", "status": "in_progress"}
    yield write("response.output_item.added", output_index=0, item=begun)
    for part in halves(arguments):
        yield write("response.function_call_arguments.delta", **item, delta=part)
    yield write("response.function_call_arguments.done", **item, name=done["name"], arguments=arguments)
    yield write("response.output_item.done", output_index=0, item=done)


def _response(call: Call, stamp: Stamp, reply: Reply | None = None) -> dict[str, Any]:
    """The response document: in progress without a reply, else completed or incomplete."""
    cut = reply is not None and reply.truncated
    status = "in_progress" if reply is None else "incomplete" if cut else "completed"
    return {
        "id": f"resp_{stamp.ordinal}",
        "object": "response",
        "created_at": stamp.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": None,
        "max_output_tokens": call.max_tokens,
        "metadata": {},
        "model": call.model,
        "output": [] if reply is None else [_item(reply, stamp)],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": _format(call)},
        "tool_choice": "auto",
        "tools": [_offered(tool.name, tool.schema) for tool in call.tools],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None if reply is None else _usage(call, reply),
        "user": None,
    }


def _item(reply: Reply, stamp: Stamp) -> dict[str, Any]:
    status = "incomplete" if reply.truncated else "completed"
    if reply.tool is not None:
        return {
            "id": f"fc_{stamp.ordinal}",
            "type": "function_call",
            "status": status,
            "call_id": f"call_{stamp.ordinal}",
            "name": reply.tool.name,
            "arguments": reply.tool.arguments,
        }
    part: dict[str, Any] = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    if reply.refused:
        part = {"type": "refusal", "refusal": reply.text}
    return {
        "id": f"msg_{stamp.ordinal}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [part],
    }


def _format(call: Call) -> dict[str, Any]:
    if call.schema is None:
        return {"type": "text"}
    return {"type": "json_schema", "name": "answer", "strict": True, "schema": dict(call.schema)}


def _offered(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": name, "description": None, "parameters": dict(schema)}
    return {"type": "function", "strict": False, **function}


def _usage(call: Call, reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": call.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": call.prompt_tokens + reply.completion_tokens,
    }


def _conversation(given: Any) -> list[tuple[str, str]]:
    if isinstance(given, str):
        return [("user", given)]
    if not isinstance(given, list) or not given:
        raise RequestError("input: a text or a list of items is required")
    return [_message(index, item) for index, item in enumerate(given)]


def _message(index: int, item: Any) -> tuple[str, str]:
    match item:
        case {"type": "function_call_output", "call_id": str(), "output": output}:
            return "tool", read_text(output, f"input[{index}].output")
        case {"type": "function_call", "call_id": str(), "name": str(), "arguments": str(arguments)}:
            return "assistant", arguments
        case {"role": role, "content": content} if role in _ROLES and item.get("type") in (None, "message"):
            return role, read_text(content, f"input[{index}].content")
    raise RequestError(f"input[{index}]: a message with role and content, or another item, is required")


def _object(payload: dict[str, Any], field: str) -> dict[str, Any]:
    value = payload.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"{field}: an object is required")
    return value


def _max_tokens(payload: dict[str, Any]) -> int | None:
    most = read_positive(payload, "max_output_tokens")
    if most is not None and most < LEAST_OUTPUT:
        raise RequestError(
            f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {LEAST_OUTPUT}, "
            f"but got {most} instead."
        )
    return most


def _schema(form: dict[str, Any]) -> dict[str, Any] | None:
    match form.get("type"):
        case "json_schema" if isinstance(form.get("name"), str) and isinstance(form.get("schema"), dict):
            schema: dict[str, Any] = form["schema"]
            return schema
        case "json_schema":
            raise RequestError("Missing required parameter: 'text.format.name' or 'text.format.schema'.")
        case None | "text" | "json_object":
            return None
    raise RequestError("text.format.type: text, json_object or json_schema is required")


def _tools(tools: Any) -> tuple[OfferedTool, ...]:
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise RequestError("tools: an array is required")
    offered = list[OfferedTool]()
    for index, tool in enumerate(tools):
        match tool:
            case {"type": "function", "name": str(name), **function} if name:
                schema = function.get("parameters")
                offered.append(OfferedTool(name, schema if isinstance(schema, dict) else {"type": "object"}))
            case {"type": str(kind)} if kind != "function":
                pass  # a tool that the provider runs itself
            case _:
                raise RequestError(f"Missing required parameter: 'tools[{index}].name'.")
    return tuple(offered)


def _chosen(tools: tuple[OfferedTool, ...], choice: Any) -> tuple[OfferedTool, ...]:
    match choice:
        case None | "auto" | "required":
            return tools
        case "none":
            return ()
        case {"type": "function", "name": str(name)}:
            if wanted := named(tools, name):
                return wanted
    raise RequestError("tool_choice: none, auto, required or one of the functions in tools is required")

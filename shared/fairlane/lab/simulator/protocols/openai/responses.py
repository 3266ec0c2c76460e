"""OpenAI's responses, as the simulated provider speaks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat, error_of
from fairlane.lab.simulator.protocols.openai.responses_request import read_call
from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    Problem,
    Reply,
    Stamp,
    halves,
    write_event,
    write_json,
)


class OpenAIResponses(OpenAIChat):
    """Responses; streams are named events, and the last one carries the whole response."""

    paths: ClassVar[tuple[str, ...]] = ("/v1/responses",)

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """Reads as `responses_request` does."""
        return read_call(payload)

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

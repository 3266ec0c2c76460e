"""The protocol "ollama": Ollama's own API of chats and embeddings."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fairlane_workers.providers.answers.answer import (
    Answer,
    ToolCall,
    UnreadableError,
    as_list,
    as_object,
    packed,
    parse_object,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect, UnmappableError
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.framing.event import EventParser, StreamEvent
from fairlane_workers.providers.framing.ndjson import NdjsonParser
from fairlane_workers.providers.requests.media import Media
from fairlane_workers.providers.requests.messages import ChatMessage, read_messages
from fairlane_workers.providers.requests.parameters import Parameters, Tool
from fairlane_workers.providers.requests.vocabulary import without_openais

_FIXED = frozenset({"model", "messages", "stream"})
_OWN = frozenset(
    {"format", "keep_alive", "logprobs", "options", "shift", "template", "think", "top_logprobs", "truncate"}
)


# https://github.com/ollama/ollama/blob/main/docs/api.md#generate-embeddings
_OWN_OF_EMBEDDINGS = frozenset({"dimensions", "keep_alive", "options", "truncate"})
_DROPPED = frozenset({"encoding_format", "user"})
_NO_MODEL = re.compile(r"^model ['\"]?([^'\"\s]+)['\"]? not found")


class OllamaEmbeddings(Dialect):
    """``POST {base_url}/api/embed``. The answer's text has the form of `fairlane.evaluators.embeddings`."""

    protocol = "ollama"
    path = "/api/embed"
    streams = False

    def body(self, request: Request) -> dict[str, Any]:
        """Names that are not the API's own become ``options``, such as ``num_ctx``; given ones go before."""
        given = {name: value for name, value in request.params.items() if value is not None}
        own = {name: value for name, value in given.items() if name in _OWN_OF_EMBEDDINGS}
        options = {name: value for name, value in given.items() if name not in _OWN_OF_EMBEDDINGS | _DROPPED}
        if options and isinstance(own.get("options", {}), Mapping):
            own["options"] = {**options, **own.get("options", {})}
        return {**own, "model": request.model, "input": list(request.inputs or ())}

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """Read the vectors, in the order of the texts."""
        if document.get("error"):
            answer.error = document["error"]
            return
        answer.name_model(document.get("model"))
        answer.count(0, document.get("prompt_eval_count"))
        listed = as_list(document.get("embeddings"), "embeddings")
        answer.add(packed(as_list(vector, "embeddings[]") for vector in listed))
        answer.ended = True

    def error(self, headers: Mapping[str, str], body: bytes) -> ErrorBody:
        """See `Dialect.error`."""
        return _with_remedy(ErrorBody.parse(body))


class Ollama(Dialect):
    """``POST {base_url}/api/chat``; a stream's last line says ``done`` and why."""

    protocol = "ollama"
    path = "/api/chat"
    embeddings = OllamaEmbeddings

    def body(self, request: Request) -> dict[str, Any]:
        """Sampling parameters become ``options``, like every name that is not one of the API's own.

        Given ``options`` and ``format`` go before what is translated. Raises `UnmappableError` for a
        ``tool_choice`` that demands a call, and for OpenAI's other parameters: Ollama ignores options that
        it does not know.
        """
        asked = Parameters.of(request.params)
        rest = without_openais(asked.rest, self.protocol, _OWN)
        own = {name: value for name, value in rest.items() if name in _OWN}
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [_message(message) for message in read_messages(request.messages)],
            "stream": request.stream,
            "format": asked.schema.schema if asked.schema else "json" if asked.json else None,
            "tools": _tools(asked),
            **own,
            "options": _options(asked, rest),
        }
        return {name: value for name, value in body.items() if value is not None}

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """See `Dialect.read`."""
        self._take(document, answer)

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        """See `Dialect.fold`."""
        return self._take(parse_object(event.data), answer)

    def events(self) -> EventParser:
        """See `Dialect.events`."""
        return NdjsonParser()

    def error(self, headers: Mapping[str, str], body: bytes) -> ErrorBody:
        """The error's message; if the server lacks the model, with the command that fetches it."""
        return _with_remedy(ErrorBody.parse(body))

    def _take(self, document: Mapping[str, Any], answer: Answer) -> str:
        if error := document.get("error"):
            answer.error = error
            return ""
        message = as_object(document.get("message"), "message")
        for call in as_list(message.get("tool_calls") or [], "message.tool_calls"):
            answer.tools.append(_tool_call(call))
        answer.thought = answer.thought or bool(message.get("thinking"))
        if message.get("images"):
            answer.hold("images")
        content = message.get("content")
        text = answer.add(content) if isinstance(content, str) else ""
        if document.get("done") is True:
            _end(document, answer)
        return text


def _message(message: ChatMessage) -> dict[str, Any]:
    """A message with its images next to the text, which is one. What is in Ollama's own form stays."""
    message.refuse_unknown("ollama")
    given = message.given
    written: dict[str, Any] = {"role": message.role, "content": message.text}
    images = [*(given.get("images") or ()), *map(_image, message.media)]
    if images:
        written["images"] = images
    if message.calls:
        written["tool_calls"] = [
            {"function": {"name": call.name, "arguments": dict(call.arguments)}} for call in message.calls
        ]
    if message.role == "tool" and (name := given.get("tool_name") or message.tool):
        written["tool_name"] = name
    return written


def _image(media: Media) -> str:
    if media.kind != "image":
        raise media.unmappable("ollama", "takes texts and images alone")
    if media.data is None:
        raise media.unmappable("ollama", 'loads no image: give "data:<type>;base64,…"')
    return media.data


def _options(asked: Parameters, rest: Mapping[str, Any]) -> object:
    """Sampling parameters and others; given options take precedence, and ``None`` drops one."""
    given = rest.get("options")
    if given is not None and not isinstance(given, Mapping):
        return given
    options: dict[str, Any] = {
        "num_predict": asked.max_tokens,
        **asked.sampling,
        "stop": list(asked.stop) or None,
        **{name: value for name, value in rest.items() if name not in _OWN | _FIXED},
        **(given or {}),
    }
    return {name: value for name, value in options.items() if value is not None} or None


def _tools(asked: Parameters) -> list[dict[str, Any]] | None:
    if asked.tool_choice == "required" or isinstance(asked.tool_choice, Tool):
        raise UnmappableError('params.tool_choice: Ollama knows "auto" and "none" alone')
    if not asked.tools or asked.tool_choice == "none":
        return None
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description or "", "parameters": tool.schema},
        }
        for tool in asked.tools
    ]


def _tool_call(call: object) -> ToolCall:
    function = as_object(as_object(call, "tool_calls[]").get("function"), "tool_calls[].function")
    arguments = json.dumps(function.get("arguments") or {}, ensure_ascii=False)
    return ToolCall(str(function.get("name", "")), arguments)


def _end(document: Mapping[str, Any], answer: Answer) -> None:
    """Read the last line of an answer: finish reason and token counts."""
    reason = document.get("done_reason")
    answer.name_model(document.get("model"))
    if reason == "load" and not (answer.text or answer.tools):
        raise UnreadableError("the model was loaded and said nothing (done_reason load)")
    answer.count(document.get("eval_count"), document.get("prompt_eval_count"))
    answer.finish(reason)
    answer.ended = True


def _with_remedy(error: ErrorBody) -> ErrorBody:
    """The error; if the server lacks the model, its message has the command that fetches it."""
    found = _NO_MODEL.match(error.message or "")
    if found is None:
        return error
    remedy = f"model '{found[1]}' not found: run `ollama pull {found[1]}` on the server"
    return replace(error, message=remedy)

"""The protocol "openai_responses": OpenAI's Responses API."""

from collections.abc import Mapping
from typing import Any, ClassVar

from fairlane_workers.providers.answers.answer import (
    Answer,
    ToolCall,
    UnreadableError,
    answer_tokens,
    as_list,
    as_object,
    event_object,
    within,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.openai.embeddings import OpenAIEmbeddings
from fairlane_workers.providers.protocols.openai.errors import LATE_STATUSES, error_in, read_error
from fairlane_workers.providers.protocols.openai.responses_request import request_body

_ENDINGS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input"}


class OpenAIResponses(Dialect):
    """``POST {base_url}/responses``; a stream ends with an event that holds the whole response."""

    protocol = "openai_responses"
    path = "/responses"
    embeddings = OpenAIEmbeddings  # servers of responses have them, too
    late_statuses: ClassVar[Mapping[str, int]] = LATE_STATUSES

    def body(self, request: Request) -> dict[str, Any]:
        """See `Dialect.body`."""
        return request_body(request)

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """See `Dialect.read`."""
        if error := error_in(document):
            answer.error = error
            return
        items = as_list(document.get("output"), "output")
        for item in items:
            _take_item(as_object(item, "output[]"), answer)
        _end(document, answer)

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        """See `Dialect.fold`."""
        if event.data == "[DONE]":  # of servers that end every stream like chat completions
            return ""
        document = event_object(event.data, answer)
        if document is None:
            return ""
        match document.get("type"):
            case "response.output_text.delta" if isinstance(text := document.get("delta"), str):
                return answer.add(text)
            case "response.refusal.delta":
                return answer.decline(document.get("delta"))
            case "response.output_item.done":
                _take_call(as_object(document.get("item"), "item"), answer)
            case kind if kind in _ENDINGS:
                return _take_ending(as_object(document.get("response"), "response"), answer)
            case "error":
                answer.error = error_in(document) or document
            case kind:  # reasoning, progress of tools, and future events
                answer.error = error_in(document)
                if kind is None:
                    answer.aside = answer.aside or ErrorBody.with_words(document)
        return ""

    def error(self, headers: Mapping[str, str], body: bytes) -> ErrorBody:
        """See `Dialect.error`."""
        return read_error(body)


def _take_item(item: Mapping[str, Any], answer: Answer) -> str:
    """Add an item of the output: a message's text or refusal, or a function call; reasoning is skipped."""
    _take_call(item, answer)
    texts = list[str]()
    if item.get("type") == "message":
        for each in as_list(item.get("content"), "content"):
            part = as_object(each, "content[]")
            if part.get("type") == "output_text" and isinstance(text := part.get("text"), str):
                texts.append(answer.add(text))
            elif part.get("type") == "refusal":
                texts.append(answer.decline(part.get("refusal")))
                answer.refusal = answer.refusal or "it declined"
            else:
                answer.hold(part.get("type"))
    elif item.get("type") not in ("reasoning", *_ARGUMENTS):
        answer.hold(item.get("type"), trace=item.get("type") != "image_generation_call")
    return "".join(texts)


def _take_call(item: Mapping[str, Any], answer: Answer) -> None:
    field = _ARGUMENTS.get(str(item.get("type")))
    if field is not None:
        name, arguments = item.get("name"), item.get(field)
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise UnreadableError(f"output[]: a call needs a name and {field}")
        answer.tools.append(ToolCall(name, arguments))


def _take_ending(response: Mapping[str, Any], answer: Answer) -> str:
    """Read the end of a stream, whose output is a snapshot of all that came in pieces."""
    if error := error_in(response):
        answer.error = error
        return ""
    said = Answer()
    for item in as_list(response.get("output") or [], "output"):
        _take_item(as_object(item, "output[]"), said)
    answer.tools = answer.tools or said.tools
    answer.held |= said.held
    answer.refusal = answer.refusal or said.refusal
    answer.declined = answer.declined or said.declined
    text = "" if said.text is None else answer.snapshot(said.text)
    _end(response, answer)
    return text


def _end(response: Mapping[str, Any], answer: Answer) -> None:
    answer.name_model(response.get("model"))
    _count(response.get("usage"), answer)
    match response.get("status"):
        case "failed":
            answer.error = {"code": "server_error", "message": "the response failed, without an error"}
            return
        case "cancelled" | "queued" | "in_progress" as status:
            raise UnreadableError(f"status: {status}, where the whole response was expected")
        case "incomplete":
            answer.finish(within(response, "incomplete_details", "reason") or "incomplete")
        case _:
            answer.finish("completed")
    answer.ended = True


def _count(usage: object, answer: Answer) -> None:
    asked, details = within(usage, "input_tokens"), within(usage, "input_tokens_details")
    answered = answer_tokens(within(usage, "output_tokens"), asked, within(usage, "total_tokens"))
    answer.count(answered, asked, within(details, "cached_tokens"), within(details, "cache_write_tokens"))

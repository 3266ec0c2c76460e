"""The protocol "bedrock": Amazon Bedrock's Converse API."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote

from fairlane_workers.providers.answers.answer import (
    Answer,
    ToolCall,
    UnreadableError,
    as_list,
    as_object,
    parse_object,
    within,
)
from fairlane_workers.providers.auth.sigv4 import require_botocore
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.framing.aws_events import ERROR, AwsEventParser
from fairlane_workers.providers.framing.event import EventParser, StreamEvent
from fairlane_workers.providers.protocols.bedrock_body import converse_body

LATE_STATUSES = {
    "accessdeniedexception": 403,
    "conflictexception": 400,
    "expiredtokenexception": 403,
    "internalserverexception": 500,
    "invalidsignatureexception": 403,
    "modelerrorexception": 424,
    "modelnotreadyexception": 429,
    "modelstreamerrorexception": 424,
    "modeltimeoutexception": 408,
    **dict.fromkeys(("requesttimeout", "requesttimeoutexception"), 408),
    "resourcenotfoundexception": 404,
    "servicequotaexceededexception": 400,
    "serviceunavailableexception": 503,
    "throttlingexception": 429,
    "unrecognizedclientexception": 403,
    "validationexception": 400,
}
"""From botocore's model of ``bedrock-runtime``, and those that all of Amazon's services share."""

_TEXTS = frozenset({"text", "reasoningContent", "citationsContent", "citation", "toolUse"})
_TRACES = frozenset({"toolResult", "searchResult", "guardContent", "cachePoint"})
_REFUSALS = {
    "guardrail_intervened": "a guardrail stopped the answer (stopReason guardrail_intervened)",
    "content_filtered": "the provider's content filter stopped the answer (stopReason content_filtered)",
}


class Bedrock(Dialect):
    """``POST {base_url}/model/{id}/converse``; a stream of Amazon's events ends with ``metadata``."""

    protocol = "bedrock"
    late_statuses: ClassVar[Mapping[str, int]] = LATE_STATUSES

    def __init__(self) -> None:
        """Raises `ConfigurationError` if botocore is missing, which decodes the streams."""
        require_botocore("protocol", self.protocol, "botocore.eventstream")

    def headers(self) -> dict[str, str]:
        """See `Dialect.headers`."""
        return {"accept": "application/json, application/vnd.amazon.eventstream"}

    def target(self, request: Request) -> str:
        """See `Dialect.target`."""
        operation = "converse-stream" if request.stream else "converse"
        return f"/model/{quote(request.model, safe='-_.~')}/{operation}"

    def body(self, request: Request) -> dict[str, Any]:
        """See `Dialect.body`."""
        return converse_body(request)

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """See `Dialect.read`."""
        if "output" not in document and "__type" in document:
            kind = next(_names(document["__type"]), "")
            answer.error = _error(kind, document)
            return
        _note(document, answer)
        message = as_object(as_object(document.get("output"), "output").get("message"), "output.message")
        for block in as_list(message.get("content"), "output.message.content"):
            _take_block(as_object(block, "content[]"), answer)
        _stop(document.get("stopReason"), answer)
        answer.ended = True

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        """See `Dialect.fold`."""
        document = parse_object(event.data)
        match event.name:
            case "contentBlockDelta":
                return _take_delta(as_object(document.get("delta"), "delta"), answer)
            case "contentBlockStart":
                if isinstance(use := within(document, "start", "toolUse"), dict):
                    answer.tools.append(ToolCall(_tool_name(use), ""))
            case "messageStop":
                _stop(document.get("stopReason"), answer)
            case "metadata":
                _note(document, answer)
                answer.ended = True
            case name if name.startswith(ERROR):
                answer.error = _error(name.removeprefix(ERROR), document)
            case _:  # messageStart, contentBlockStop, and future events
                pass
        return ""

    def events(self) -> EventParser:
        """See `Dialect.events`."""
        return AwsEventParser()

    def error(self, headers: Mapping[str, str], body: bytes) -> ErrorBody:
        """The type is in a header or in the body's ``__type``, at times with a namespace or a link."""
        parsed = ErrorBody.parse(body)
        kinds = (*_names(headers.get("x-amzn-errortype")), *_names(parsed.error.get("__type")))
        return replace(parsed, kinds=(*(kind.lower() for kind in kinds), *parsed.kinds))


def _names(value: object) -> Iterator[str]:
    """``Name`` of ``prefix#Name`` and ``Name:http://…``."""
    if isinstance(value, str) and (name := value.partition(":")[0].rpartition("#")[2].strip()):
        yield name


def _tool_name(use: Mapping[str, Any]) -> str:
    """The tool to call; empty for one that Bedrock called itself."""
    return "" if use.get("type") == "server_tool_use" else str(use.get("name", ""))


def _take_block(block: Mapping[str, Any], answer: Answer) -> None:
    if isinstance(text := block.get("text"), str):
        answer.add(text)
    elif isinstance(cited := block.get("citationsContent"), dict):
        for part in as_list(cited.get("content") or [], "citationsContent.content"):
            _take_block(as_object(part, "citationsContent.content[]"), answer)
    elif isinstance(use := block.get("toolUse"), dict) and (name := _tool_name(use)):
        answer.tools.append(ToolCall(name, json.dumps(use.get("input") or {}, ensure_ascii=False)))
    else:
        _hold(block, answer)


def _hold(block: Mapping[str, Any], answer: Answer) -> None:
    """Note reasoning, and what a block holds that is neither text nor that nor a call of ours."""
    answer.thought = answer.thought or "reasoningContent" in block
    for kind in block.keys() - _TEXTS:
        answer.hold(kind, trace=kind in _TRACES)


def _take_delta(delta: Mapping[str, Any], answer: Answer) -> str:
    if isinstance(text := delta.get("text"), str):
        return answer.add(text)
    _hold(delta, answer)
    if isinstance(use := delta.get("toolUse"), dict) and isinstance(piece := use.get("input"), str):
        if not answer.tools:
            raise UnreadableError("delta.toolUse: no toolUse block was started")
        last = answer.tools[-1]
        answer.tools[-1] = ToolCall(last.name, last.arguments + piece)
    return ""


def _stop(reason: object, answer: Answer) -> None:
    answer.tools = [tool for tool in answer.tools if tool.name]
    answer.refusal = _REFUSALS.get(reason) if isinstance(reason, str) else None
    answer.finish(reason)


def _error(kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """An error inside an answer, with its fields: the status of the model behind Bedrock is one."""
    return {**document, "type": kind, "message": ErrorBody.of(document).message}


def _note(document: Mapping[str, Any], answer: Answer) -> None:
    """Note the token counts, and the model that a prompt router chose, where a trace names it.

    Bedrock counts cache reads and writes apart from the rest of the prompt.
    """
    answer.name_model(within(document, "trace", "promptRouter", "invokedModelId"))
    names = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "outputTokens")
    answer.count_beside_cache(document.get("usage"), *names)

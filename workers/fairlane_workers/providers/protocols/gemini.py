"""The protocols "gemini" and "vertex": ``generateContent`` and ``embedContent`` of Google."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from fairlane.export.finish_reasons import Ending, ending_of
from fairlane_workers.providers.answers.answer import (
    Answer,
    ToolCall,
    UnreadableError,
    as_list,
    as_object,
    event_object,
    first_of,
    packed,
    sum_tokens,
    within,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect, UnmappableError
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.gemini_request import build_body, resource

# https://cloud.google.com/apis/design/errors#handling_errors
LATE_STATUSES = {
    "invalid_argument": 400,
    "failed_precondition": 400,
    "out_of_range": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "aborted": 409,
    "already_exists": 409,
    "resource_exhausted": 429,
    "cancelled": 499,
    "internal": 500,
    "unknown": 500,
    "data_loss": 500,
    "unimplemented": 501,
    "unavailable": 503,
    "deadline_exceeded": 504,
}

LOCKED_OUT = "PUP_LIMITED_DISABLED"
"""The account may not use the model: https://ai.google.dev/api/generate-content#FinishReason"""

UNNAMED = "OTHER"
"""Gemini broke off for a reason that it does not name. Elsewhere "other" may end a whole answer."""

_MEDIA = ("inlineData", "fileData")
_TRACES = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_COLLECTIONS = ("models", "tunedModels")

# https://ai.google.dev/api/embeddings
_DROPPED = frozenset({"encoding_format", "user"})
_OWN_NAMES = {"dimensions": "outputDimensionality", "task_type": "taskType", "auto_truncate": "autoTruncate"}


class GeminiEmbeddings(Dialect):
    """``:embedContent`` for one text, ``:batchEmbedContents`` for more.

    The answer's text has the form of `fairlane.evaluators.embeddings`.
    """

    protocol = "gemini"
    streams = False

    def target(self, request: Request) -> str:
        """See `Dialect.target`."""
        method = "embedContent" if len(request.inputs or ()) == 1 else "batchEmbedContents"
        return f"{resource(request.model, _COLLECTIONS)}:{method}"

    def body(self, request: Request) -> dict[str, Any]:
        """One request, or a list of them. OpenAI's ``dimensions`` is ``outputDimensionality``."""
        params = {
            _OWN_NAMES.get(name, name): value
            for name, value in request.params.items()
            if name not in _DROPPED and value is not None
        }
        model = resource(request.model, _COLLECTIONS).removeprefix("/")
        asked = [
            {**params, "model": model, "content": {"parts": [{"text": text}]}}
            for text in request.inputs or ()
        ]
        return asked[0] if len(asked) == 1 else {"requests": asked}

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """Read the vectors in the order of the texts. Most models count no tokens."""
        if document.get("error"):
            answer.error = document["error"]
            return
        usage = document.get("usageMetadata")
        if isinstance(usage, dict):
            answer.count(0, usage.get("promptTokenCount"))
        one = document.get("embedding")
        listed = as_list(document.get("embeddings"), "embeddings") if one is None else [one]
        vectors = [as_object(each, "embeddings[]").get("values") for each in listed]
        answer.add(packed(as_list(each, "embeddings[].values") for each in vectors))
        answer.ended = True


class Gemini(Dialect):
    """``POST {base_url}/models/{model}:generateContent``.

    A stream has no end mark: it ends with the connection's body, after the reason to finish. Some models
    repeat that reason in every event.
    """

    protocol = "gemini"
    embeddings: ClassVar[type[Dialect] | None] = GeminiEmbeddings
    late_statuses: ClassVar[Mapping[str, int]] = LATE_STATUSES

    def target(self, request: Request) -> str:
        """See `Dialect.target`."""
        method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        return f"{self.resource(request.model)}:{method}"

    def resource(self, model: str) -> str:
        """The path of a model, such as ``/models/gemini-flash``."""
        return resource(model, _COLLECTIONS)

    def body(self, request: Request) -> dict[str, Any]:
        """See `Dialect.body`."""
        return build_body(request)

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """See `Dialect.read`."""
        self._take(document, answer)
        if answer.error:
            return
        if answer.finish_reason is None and not answer.parts and not answer.tools:
            raise UnreadableError("candidates: there is none")
        answer.ended = True

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        """See `Dialect.fold`."""
        document = event_object(event.data, answer)
        return "" if document is None else self._take(document, answer)

    def _take(self, document: Mapping[str, Any], answer: Answer) -> str:
        if document.get("error"):
            answer.error = document["error"]
            return ""
        answer.name_model(document.get("modelVersion"))
        _count(document.get("usageMetadata"), answer)
        _blocked(document.get("promptFeedback"), answer)
        candidate = first_of(as_list(document.get("candidates") or [], "candidates"), "candidates[]")
        if candidate is None:
            return ""
        content = as_object(candidate.get("content") or {}, "candidates[0].content")
        parts = as_list(content.get("parts") or [], "candidates[0].content.parts")
        text = "".join([_take_part(as_object(part, "parts[]"), answer) for part in parts])
        _stop(candidate, answer)
        return text


class Vertex(Gemini):
    """``POST {base_url}/publishers/google/models/{model}:generateContent``; tuned: ``endpoints/…``."""

    protocol = "vertex"
    embeddings = None  # they are another API

    def resource(self, model: str) -> str:
        """See `Dialect.resource`."""
        if model.startswith("projects/"):
            raise UnmappableError(
                f"model: {model!r} names a project, but the connection's base_url does; "
                'write "endpoints/<id>" or the name alone'
            )
        name = model.removeprefix("google/").removeprefix("models/")
        return resource(name, ("publishers/google/models", "endpoints"))


def _take_part(part: Mapping[str, Any], answer: Answer) -> str:
    """Add a part of the answer; thoughts are not part of it."""
    if part.get("thought") is True:
        answer.thought = True
        return ""
    if isinstance(call := part.get("functionCall"), dict):
        name = call.get("name")
        arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
        answer.tools.append(ToolCall(name if isinstance(name, str) else "", arguments))
    _hold(part, answer)
    text = part.get("text")
    return answer.add(text) if isinstance(text, str) else ""


def _hold(part: Mapping[str, Any], answer: Answer) -> None:
    """Note what a part holds besides text."""
    for name in _MEDIA:
        if isinstance(media := part.get(name), dict):
            answer.hold(media.get("mimeType") or name)
    for name in _TRACES:
        if name in part:
            answer.hold(name, trace=True)


def _blocked(feedback: object, answer: Answer) -> None:
    """Note why the prompt was blocked: then there are no candidates, but a reason."""
    reason = within(feedback, "blockReason")
    if isinstance(reason, str) and reason:
        said = _after_colon(within(feedback, "blockReasonMessage"))
        answer.refusal = f"the provider blocked the prompt (blockReason {reason}){said}"
        answer.finish(reason)


def _stop(candidate: Mapping[str, Any], answer: Answer) -> None:
    """Note the finish reason. ``MAX_TOKENS`` and unknown reasons are answers, too: the reason shows it.

    Raises `UnreadableError` where the model broke off, so that the call is made again.
    """
    reason, said = candidate.get("finishReason"), _after_colon(candidate.get("finishMessage"))
    ending = ending_of(reason) if isinstance(reason, str) else None
    if ending is Ending.MALFORMED or reason == UNNAMED:
        raise UnreadableError(f"the model broke off (finishReason {reason}){said}")
    if reason == LOCKED_OUT:
        answer.error = {"status": "PERMISSION_DENIED", "message": f"finishReason {reason}{said}"}
        return
    if ending is Ending.CONTENT_FILTER:
        answer.refusal = f"the provider's filter stopped the answer (finishReason {reason}){said}"
    answer.finish(reason)


def _after_colon(words: object) -> str:
    return f": {words}" if isinstance(words, str) and words else ""


def _count(usage: object, answer: Answer) -> None:
    """Note the token counts, cumulative in a stream. The prompt includes cache reads; results of tools are
    input, too. Thoughts are billed as output: the total shows whether the candidates' count has them.
    """
    written, thoughts = within(usage, "candidatesTokenCount"), within(usage, "thoughtsTokenCount")
    asked = sum_tokens(within(usage, "promptTokenCount"), within(usage, "toolUsePromptTokenCount"))
    has_thoughts = written and sum_tokens(asked, written) == within(usage, "totalTokenCount")
    put_out = written if has_thoughts else sum_tokens(written, thoughts)
    answer.count(put_out, asked, within(usage, "cachedContentTokenCount"))

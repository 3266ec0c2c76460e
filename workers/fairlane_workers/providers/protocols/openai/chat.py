"""The protocol "openai": chat completions of OpenAI, of Mistral, and of compatible servers."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

from fairlane.config.connections.connection import Connection
from fairlane_workers.providers.answers.answer import (
    Answer,
    ToolCall,
    ToolDraft,
    UnreadableError,
    answer_tokens,
    as_list,
    as_object,
    event_object,
    first_of,
    within,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect, UnmappableError
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.openai.embeddings import OpenAIEmbeddings
from fairlane_workers.providers.protocols.openai.errors import (
    LATE_STATUSES,
    error_in,
    read_error,
    unwrapped,
)
from fairlane_workers.providers.protocols.openai.mistral_request import mistral_body

_TEXT_PARTS = ("text", "output_text", None)
_THINKING_PARTS = ("thinking", "reasoning")
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")

FOREIGN_TO_OPENAI = ("top_k", "min_p", "repetition_penalty", "stop_sequences", "max_output_tokens")
"""Parameters of other protocols and servers that chat completions of OpenAI and Azure do not have."""


class OpenAIChat(Dialect):
    """``POST {base_url}/chat/completions``; a stream ends with ``data: [DONE]``."""

    protocol = "openai"
    path = "/chat/completions"
    embeddings: ClassVar[type[Dialect] | None] = OpenAIEmbeddings
    late_statuses: ClassVar[Mapping[str, int]] = LATE_STATUSES

    @classmethod
    def of(cls, connection: Connection) -> Dialect:
        """See `Dialect.of`: Mistral gets a variant, and OpenAI itself only what its schema has."""
        if _leads_to(connection, "mistral", "mistral.ai"):
            return MistralChat()
        return OpenAIsOwnChat() if _leads_to(connection, "openai", "openai.com") else OpenAIChat()

    def body(self, request: Request) -> dict[str, Any]:
        """Parameters and messages; a stream requests its usage, unless ``stream_options`` is ``None``."""
        fixed = {"model": request.model, "messages": request.messages, "stream": request.stream}
        body = {**request.params, **fixed}
        options = body.pop("stream_options", {})
        if request.stream and options is not None:
            wanted = {"include_usage": True}
            body["stream_options"] = {**wanted, **options} if isinstance(options, dict) else options
        return body

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """See `Dialect.read`."""
        document = unwrapped(document)
        if error := error_in(document):
            answer.error = error
            return
        answer.name_model(document.get("model"))
        _count(document.get("usage"), answer)
        choices = as_list(document.get("choices"), "choices")
        choice = first_of(choices, "choices[]") or next(iter(choices), None)
        if choice is None:
            raise UnreadableError("choices: empty")
        if error := choice.get("error"):  # OpenRouter's
            answer.error = error
            return
        text = choice.get("text") if choice.get("message") is None else None  # completions of old
        message = {"content": text} if isinstance(text, str) else choice.get("message")
        _take(as_object(message, "choices[0].message"), answer)
        _take_calls(choice.get("message") or {}, answer)
        _stop(choice.get("finish_reason"), answer)
        answer.ended = True

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        """See `Dialect.fold`."""
        if event.data == "[DONE]":
            text = _take_other(answer)
            answer.take_drafts()
            answer.ended, answer.unreasoned = True, answer.finish_reason is None
            return text
        received = event_object(event.data, answer)
        if received is None:
            return ""
        document = unwrapped(received)
        if error := (error_in(document) or (document if event.name == "error" else None)):
            answer.fail(error)
            return ""
        if "choices" not in document:
            answer.aside = answer.aside or ErrorBody.with_words(document)
        answer.name_model(document.get("model"))
        _count(document.get("usage") or within(document, "x_groq", "usage"), answer)
        # Chunks without a choice hold the usage, or (Azure) the prompt's filter results.
        choices = as_list(document.get("choices") or [], "choices")
        choice = first_of(choices, "choices[]")
        if choice is None:
            _keep_other(choices, answer)
            return ""
        return _fold_choice(choice, answer)

    def error(self, headers: Mapping[str, str], body: bytes) -> ErrorBody:
        """See `Dialect.error`."""
        return read_error(body)


class OpenAIsOwnChat(OpenAIChat):
    """What OpenAI itself takes; other servers have more parameters."""

    def body(self, request: Request) -> dict[str, Any]:
        """See `Dialect.body`."""
        refuse_foreign(request.params, "OpenAI")
        return super().body(request)


class MistralChat(OpenAIChat):
    """OpenAI's dialect at Mistral, which rejects parameters that it does not know.

    It always sends usage, and rejects ``stream_options`` with a 422.
    """

    def body(self, request: Request) -> dict[str, Any]:
        """See `Dialect.body`."""
        body = super().body(request)
        if "stream_options" not in request.params:
            body.pop("stream_options", None)
        return mistral_body(body)


def _leads_to(connection: Connection, provider: str, domain: str) -> bool:
    """Whether a connection is to that provider: it says so, or names nobody and has an address of theirs."""
    if connection.provider is not None:
        return connection.provider == provider
    try:
        host = (urlsplit(connection.base_url).hostname or "").rstrip(".")
    except ValueError:
        return False  # the registry reports the URL's error
    return host == domain or host.endswith(f".{domain}")


def refuse_foreign(params: Mapping[str, Any], provider: str) -> None:
    """Refuse parameters that the provider's published schema lacks, before anything is sent.

    At the provider's own address only. Raises `UnmappableError` for the first of `FOREIGN_TO_OPENAI`.
    """
    for name in FOREIGN_TO_OPENAI:
        if params.get(name) is not None:
            raise UnmappableError(
                f"params.{name}: {provider} has no such parameter; leave it out for this model"
            )


def _keep_other(choices: list[Any], answer: Answer) -> None:
    """Keep the pieces of another choice, which counts if there is no first one."""
    for choice in choices:
        if not answer.others or answer.others[0].get("index") == choice.get("index"):
            answer.others.append(choice)


def _take_other(answer: Answer) -> str:
    """At a stream's end, take the kept choice if the first has said nothing at all."""
    others, answer.others = answer.others, []
    if answer.parts or answer.drafts or answer.tools or answer.complete:
        return ""
    return "".join([_fold_choice(choice, answer) for choice in others])


def _fold_choice(choice: Mapping[str, Any], answer: Answer) -> str:
    """Add a chunk's choice: a piece (``delta``, or ``text`` of old), the ``message`` so far, or both."""
    delta, message, old = (choice.get(name) for name in ("delta", "message", "text"))
    if delta is None and message is None and isinstance(old, str):
        delta = {"content": old}
    delta = as_object(delta or {}, "choices[0].delta")
    for called in _pieces_of_calls(delta):
        _draft(called, answer)
    text = _take(delta, answer)
    if message:
        # MiniMax ends a stream with the whole message; others send it as far as it is written.
        text += _take(as_object(message, "choices[0].message"), answer, whole=True)
        _take_calls(message, answer)
    answer.error = choice.get("error")  # OpenRouter's
    _stop(choice.get("finish_reason"), answer)
    answer.closed = answer.finish_reason is not None and not text
    return text


def _take(message: Mapping[str, Any], answer: Answer, *, whole: bool = False) -> str:
    """Add the answer's text, or the model's refusal, without its reasoning, in all known forms.

    ``whole``: the message has all of the text so far, not a piece.
    """
    answer.thought = answer.thought or any(message.get(name) for name in _REASONING)
    content = message.get("content")
    parts = [content] if isinstance(content, str | dict) else as_list(content or [], "content")
    texts = [text for part in parts if (text := _text_of_part(part, answer)) is not None]
    texts += _transcripts(message.get("audio"), answer, beside=any(texts))
    if message.get("images"):  # OpenRouter's
        answer.hold("images")
    declined = [
        part.get("refusal") for part in parts if isinstance(part, dict) and part.get("type") == "refusal"
    ]
    words = [each for each in (*declined, message.get("refusal")) if isinstance(each, str) and each]
    answer.declined = answer.declined or bool(words)
    texts += words
    add = answer.snapshot if whole else answer.add
    return add("".join(texts)) if texts else ""


def _transcripts(audio: object, answer: Answer, *, beside: bool) -> list[str]:
    """What a recording says, in words, where the message itself (``beside``) has none."""
    if not isinstance(audio, dict):
        return []
    if audio.get("data"):
        answer.hold("audio")
    said = audio.get("transcript")
    if beside or not isinstance(said, str) or (answer.text and not answer.spoken):
        return []
    answer.spoken = answer.spoken or bool(said)
    return [said]


def _text_of_part(part: object, answer: Answer) -> str | None:
    """The text of a part, which may be a text itself; ``None`` for reasoning and what is no text."""
    if not isinstance(part, dict):
        return part if isinstance(part, str) else None
    kind = part.get("type")
    answer.thought = answer.thought or kind in _THINKING_PARTS
    if kind not in (*_TEXT_PARTS, *_THINKING_PARTS, "refusal"):
        answer.hold(kind)
    text = part.get("text") if kind in _TEXT_PARTS else None
    return text if isinstance(text, str) else None


def _take_calls(message: Mapping[str, Any], answer: Answer) -> None:
    """Take the calls of a whole message, in place of what came of them in pieces."""
    calls = [_tool_call(call) for call in _listed(message, "tool_calls")]
    old = message.get("function_call")
    if not calls and isinstance(old, dict) and old.get("name"):
        calls = [ToolCall(_text(old.get("name")), _text(old.get("arguments")))]
    if calls:
        answer.drafts.clear()
        answer.tools[:] = calls


def _pieces_of_calls(delta: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pieces of calls in a delta; OpenAI's older ``function_call`` is the only call of its answer."""
    listed = _listed(delta, "tool_calls")
    old = delta.get("function_call")
    if not listed and isinstance(old, dict) and (old.get("name") or old.get("arguments")):
        return [{"index": 0, "function": old}]
    return listed


def _listed(message: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return [as_object(each, f"{name}[]") for each in as_list(message.get(name) or [], name)]


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    if isinstance(custom := call.get("custom"), dict):
        return ToolCall(_text(custom.get("name")), _text(custom.get("input")))
    function = as_object(call.get("function"), "tool_calls[].function")
    return ToolCall(_text(function.get("name")), _text(function.get("arguments")))


def _draft(piece: Mapping[str, Any], answer: Answer) -> None:
    """Add a piece to a function call.

    A call is named by its index. Servers that number none, or all of them 0, give each call whole, with an
    id of its own.
    """
    function = piece.get("function") or piece.get("custom") or {}
    called = as_object(function, "tool_calls[].function")
    name, key, index = called.get("name"), piece.get("id"), piece.get("index")
    drafts = answer.drafts
    same = (draft for draft in reversed(drafts) if draft.index == index)
    found = next(same, None) if index is not None else None
    if index is None and not key and drafts:
        found = drafts[-1]
    if found is None or (key and found.key and key != found.key):
        drafts.append(found := ToolDraft(index if isinstance(index, int) else None))
    found.key = _text(key) or found.key
    found.name = found.name or _text(name)
    found.pieces.append(_text(called.get("arguments", called.get("input"))))


def _text(value: object) -> str:
    """A text unchanged, ``None`` as nothing, and any other value as the JSON that the server should have
    sent.
    """
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _stop(reason: object, answer: Answer) -> None:
    answer.finish(reason)
    if answer.finish_reason is not None:
        answer.take_drafts()


def _count(usage: object, answer: Answer) -> None:
    """Note the token counts.

    DeepSeek, Together, Moonshot and Writer have fields of their own for cached tokens, and LiteLLM for those
    written to the cache.
    """
    details = within(usage, "prompt_tokens_details")
    cached = _first_of(
        within(details, "cached_tokens"),
        within(usage, "prompt_cache_hit_tokens"),
        within(usage, "cached_tokens"),
        within(usage, "prompt_token_details", "cached_tokens"),
    )
    written = _first_of(
        within(details, "cache_write_tokens"),
        within(details, "cache_creation_tokens"),
        within(usage, "cache_creation_input_tokens"),
    )
    asked = within(usage, "prompt_tokens")
    answered = answer_tokens(within(usage, "completion_tokens"), asked, within(usage, "total_tokens"))
    answer.count(answered, asked, cached, written)


def _first_of(*values: object) -> object:
    return next((value for value in values if value is not None), None)

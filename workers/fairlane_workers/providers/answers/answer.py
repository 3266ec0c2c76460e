"""The answer to one request, gathered piece by piece."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlane.core.json_answers import json_or
from fairlane.core.reasoning import without_reasoning
from fairlane.evaluators.embeddings import BrokenEmbeddings, pack
from fairlane.export.finish_reasons import Ending, ending_of
from fairlane.model.tokens import Usage
from fairlane_workers.providers.answers.echo import Echo
from fairlane_workers.providers.errors.wording import bounded, well_formed

_LARGEST_COUNT = 2**53
_MOST_KINDS = 8
"""Kinds of parts besides text that a record names."""
_LENIENT = json.JSONDecoder(strict=False)


class UnreadableError(ValueError):
    """An answer violates its protocol's schema; the text says where. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function call that the model requests. ``arguments`` are JSON as the model wrote it."""

    name: str
    arguments: str


@dataclass(slots=True)
class ToolDraft:
    """A function call that arrives in pieces; the provider identifies it by ``index`` or ``key``.

    ``given``: the arguments it began with, which count if no piece follows.
    """

    index: int | None = None
    key: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    given: str = ""


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer that is still being made. ``handle``: its id at the provider, to poll after ``after_s``
    seconds.
    """

    handle: str
    after_s: float


@dataclass(slots=True)
class Answer:
    """An answer while it is read. A dialect fills it in; `conclude` turns it into an outcome."""

    parts: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    ended: bool = False  # the protocol's end mark has arrived
    refusal: str | None = None  # the words in which a content filter declined
    declined: bool = False  # the model itself declined, in the words of its text
    error: object = None  # an error object in place of an answer
    problem: str | None = None  # why the rest could not be read
    too_large: str | None = None  # how long it is, if it is longer than may be read
    unreasoned: bool = False  # no finish reason: only the stream's end mark shows that it is complete
    aside: Mapping[str, Any] | None = None  # a message next to the answer: an error, if the answer never ends
    skipped: str | None = None  # the beginning of the first event that was no JSON object
    closed: bool = False  # the finish reason came in an event of its own, after the last text
    thought: bool = False  # the model has reasoned
    counts: bool = True  # the provider counts the tokens of its answers
    others: list[Any] = field(default_factory=list)  # pieces of a choice that is not the first
    spoken: bool = False  # the text is the transcript of a recording
    held: dict[str, bool] = field(default_factory=dict)  # by `hold`
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None  # of the input: see `Usage`
    written_tokens: int | None = None
    tools: list[ToolCall] = field(default_factory=list)
    drafts: list[ToolDraft] = field(default_factory=list)  # calls that are not complete yet
    pending: Pending | None = None
    model: str | None = None  # the model that answered, as the provider names it
    _half: str = ""
    _echo: Echo = field(default_factory=Echo)
    _begun: int = 0  # characters before the part that is being written
    _by_pieces: bool = False  # that part has come in pieces
    _cut_up: bool = False  # apparent snapshots have turned out to be pieces

    @property
    def complete(self) -> bool:
        """Whether the text is complete, even if the connection breaks now."""
        return self.ended or self.finish_reason is not None

    @property
    def text(self) -> str | None:
        """The text so far; ``None`` if the provider sent no text field at all."""
        if not self.parts:
            return None
        return "".join(self.parts) + ("\ufffd" if self._half and not self._echo.ahead else "")

    @property
    def output(self) -> str | None:
        """The text; where tools are called, a JSON object with ``text`` and ``tool_calls``.

        A call is ``{"name", "arguments"}``, its arguments an object, or text where they are no JSON.
        """
        if not self.tools:
            return self.text
        calls = [{"name": tool.name, "arguments": _read_arguments(tool.arguments)} for tool in self.tools]
        return well_formed(json.dumps({"text": self.text or "", "tool_calls": calls}, ensure_ascii=False))

    @property
    def usage(self) -> Usage:
        """The tokens that the provider counted."""
        return Usage(self.input_tokens, self.output_tokens, self.cached_tokens, self.written_tokens)

    def add(self, text: str) -> str:
        """Append text; returns the part that can be shown now.

        A provider may split a surrogate pair over two pieces; its first half waits for the second.
        """
        if self._half or not text.isascii():
            text = self._half + text
            cut = len(text) - 1 if _is_cut(text) else len(text)
            text, self._half = well_formed(text[:cut]), text[cut:]
        if self._echo.ahead:
            text = self._echo.new_of(text)
        self._by_pieces = self._by_pieces or bool(text)
        self.parts.append(text)
        return text

    def hold(self, kind: object, *, trace: bool = False) -> None:
        """Note a part that is no text, under the provider's own name for its kind.

        ``trace``: a step on the way to the answer, such as a search that the provider made itself.
        """
        if len(self.held) < _MOST_KINDS:
            self.held.setdefault(bounded(str(kind or "a part without a type"), 60), trace)

    def decline(self, words: object) -> str:
        """Append the model's refusal; returns the part that can be shown now."""
        if not isinstance(words, str) or not words:
            return ""
        self.declined = True
        return self.add(words)

    def leave_out_reasoning(self) -> None:
        """Remove the reasoning that a server without a reasoning parser leaves at the start of the text."""
        if (text := self.text) is not None and (rest := without_reasoning(text)) != text:
            self.parts, self._half, self.thought = [rest], "", True

    def snapshot(self, text: str) -> str:
        """Note the text of the current part as a whole, so far; returns what of it can be shown now.

        It replaces what came before, in pieces or as snapshots, so that no text counts twice. An older
        snapshot, or one without the blanks around, changes nothing. Where no piece has come, "snapshots" that
        do not continue each other are pieces themselves.
        """
        text = well_formed(text[:-1] if _is_cut(text) else text)
        whole = "".join(self.parts)
        so_far = whole[self._begun :]
        if text.startswith(so_far):
            new = text[len(so_far) :]
            self._echo.expect(new)
        elif self._cut_up or not (so_far.startswith(text) or self._by_pieces):
            self._cut_up, new = True, text
        elif so_far.startswith(text) or so_far.strip().endswith(text.strip()):
            new = ""
        else:
            self._echo.forget()
            self.parts[:] = [whole[: self._begun], text]
            return ""
        self.parts[:] = [whole, new]
        return new

    def begin_part(self) -> None:
        """Begin another part of the text: later snapshots are of this one."""
        self._begun = len("".join(self.parts))
        self._echo.forget()
        self._by_pieces = self._cut_up = False

    def fail(self, error: object) -> None:
        """Note an error of a stream. After the finish reason it only ends the stream."""
        if self.closed:
            self.ended = True
        else:
            self.error = error

    def take_drafts(self) -> None:
        """Note that the function calls that arrived in pieces are complete."""
        self.tools.extend(ToolCall(draft.name, "".join(draft.pieces) or draft.given) for draft in self.drafts)
        self.drafts.clear()

    def name_model(self, name: object) -> None:
        """Note the model that answers; a stream names it in every event, so only the first counts."""
        if self.model is None and isinstance(name, str) and name:
            self.model = bounded(name, 200)

    def count(
        self, answered: object = None, asked: object = None, cached: object = None, written: object = None
    ) -> None:
        """Note token counts: of output, input, and cached input (read and written).

        Ignores values that are no counts. The largest of each counts: within an answer they grow, and some
        gateways end a stream with zeros.
        """
        self.output_tokens = _larger(self.output_tokens, answered)
        self.input_tokens = _larger(self.input_tokens, asked)
        self.cached_tokens = _larger(self.cached_tokens, cached)
        self.written_tokens = _larger(self.written_tokens, written)

    def count_beside_cache(self, usage: object, *names: str) -> None:
        """`count` for a provider whose input tokens are the rest, without what a cache held and took.

        ``names`` are those of ``usage`` for the rest, what the cache held and took, and the output. A stream
        repeats those alone that have changed.
        """
        rest, cached, written, answered = (token_count(within(usage, name)) for name in names)
        if rest is None and self.input_tokens is not None:
            rest = self.input_tokens - (self.cached_tokens or 0) - (self.written_tokens or 0)
        if rest is not None:
            self.count(None, None, cached, written)
            self.count(None, rest + (self.cached_tokens or 0) + (self.written_tokens or 0))
        self.count(answered)

    def finish(self, reason: object) -> None:
        """Note the reason why generation stopped, and what it means: every protocol's reason comes here.

        A content filter is a refusal; a server that broke off is an error, unless the provider named one.
        Raises `UnreadableError` if the model's output could not be read, or the reason is neither a text nor
        an object with a ``type``.
        """
        word, told = _reason(reason)
        if not word.strip():
            return
        shown = bounded(word, 100)
        match ending_of(shown):
            case Ending.BROKEN_OFF:
                broken = {"code": shown.lower(), "message": f"the provider broke off ({shown})"}
                self.error = self.error or broken | told
                return
            case Ending.MALFORMED:
                raise UnreadableError(f"the model broke off (finish reason {shown})")
            case Ending.CONTENT_FILTER:
                named = "" if shown == "content_filter" else f" (finish reason {shown})"
                self.refusal = self.refusal or f"the provider's content filter stopped the answer{named}"
            case _:
                pass
        self.finish_reason = shown


def _is_cut(text: str) -> bool:
    """Whether a text ends within a surrogate pair."""
    return bool(text) and "\ud800" <= text[-1] <= "\udbff"


def _larger(known: int | None, given: object) -> int | None:
    count = token_count(given)
    return known if count is None or (known is not None and known > count) else count


def _reason(reason: object) -> tuple[str, dict[str, Any]]:
    """A finish reason as a word, and the message and status of SGLang's object."""
    if isinstance(reason, dict) and reason:
        word = reason.get("type") or reason.get("reason")
        if not isinstance(word, str):
            raise UnreadableError("finish reason: an object without a type")
        told = {"status_code": status} if type(status := reason.get("status_code")) is int else {}
        if isinstance(message := reason.get("message"), str) and message:
            return word, {**told, "message": f"the provider broke off ({word}): {message}"}
        return word, told
    if reason and not isinstance(reason, str):
        raise UnreadableError(f"finish reason: {_type_problem('a text', reason)}")
    return reason if isinstance(reason, str) else "", {}


def _read_arguments(text: str) -> Any:
    return json_or(text or "{}", text)


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in ``text``, which may stand in a list (Google's errors do).

    Control characters within strings are read, and bytes that are no UTF-8 become U+FFFD: servers send both
    unescaped. Raises `UnreadableError` for anything else.
    """
    try:
        whole = text if isinstance(text, str) else text.decode(json.detect_encoding(text), "replace")
        document = _LENIENT.decode(whole)
    except (ValueError, RecursionError):
        shown = text[:80] if isinstance(text, str) else text[:80].decode("utf-8", "replace")
        raise UnreadableError(f"not JSON: {shown!r}") from None
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if not isinstance(document, dict):
        raise UnreadableError(f"a JSON object was expected, got {type(document).__name__}")
    return document


def event_object(text: str, answer: Answer) -> dict[str, Any] | None:
    """The JSON object that an event's data is; ``None`` for data that is none, such as a heartbeat.

    Gateways send ``ping``, ``keep-alive``, ``[PROCESSING]`` or ``null`` while they wait for an answer. The
    first is noted: it is the problem if nothing else ends the answer. Raises `UnreadableError` for an object
    that cannot be read.
    """
    if text.startswith("{") or (text.startswith("[") and text[1:].lstrip().startswith("{")):
        return parse_object(text)
    answer.skipped = answer.skipped or text[:80]
    return None


def as_object(value: object, name: str) -> dict[str, Any]:
    """``value`` if it is a JSON object; raises `UnreadableError` naming the field otherwise."""
    if not isinstance(value, dict):
        raise UnreadableError(f"{name}: {_type_problem('an object', value)}")
    return value


def as_list(value: object, name: str) -> list[Any]:
    """``value`` if it is a JSON array; raises `UnreadableError` naming the field otherwise."""
    if not isinstance(value, list):
        raise UnreadableError(f"{name}: {_type_problem('an array', value)}")
    return value


def _type_problem(expected: str, value: object) -> str:
    return "missing" if value is None else f"{expected} was expected, got {type(value).__name__}"


def within(value: object, *names: str) -> Any:
    """The value below these names in a JSON value; ``None`` if a part of the path is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def first_of(choices: list[Any], name: str) -> dict[str, Any] | None:
    """The choice with index 0; a stream of several choices interleaves them."""
    found = (as_object(choice, name) for choice in choices)
    return next((choice for choice in found if choice.get("index", 0) in (0, None)), None)


def packed(vectors: Iterable[Sequence[float]]) -> str:
    """Embeddings as an answer's text. Raises `UnreadableError` for what is no vector."""
    try:
        return pack(vectors)
    except BrokenEmbeddings as broken:
        raise UnreadableError(str(broken)) from None


def output_text(value: Any) -> str | None:
    """Any JSON value as an answer's text: a list of texts is joined, other values become JSON; ``None``
    stays.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(piece, str) for piece in value):
        return "".join(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def token_count(value: object) -> int | None:
    """``value`` if it is a count of tokens, else ``None``."""
    return value if type(value) is int and 0 <= value < _LARGEST_COUNT else None


def sum_tokens(*values: object) -> int | None:
    """The sum of those that are counts of tokens; ``None`` if none is."""
    counts = [count for value in values if (count := token_count(value)) is not None]
    return sum(counts) if counts else None


def answer_tokens(answered: object, prompt: object, total: object) -> int | None:
    """The tokens of an answer, reasoning included: some servers count that in their ``total`` alone."""
    counted, asked, both = token_count(answered), token_count(prompt), token_count(total)
    rest = None if asked is None or both is None or both <= asked else both - asked
    return max((count for count in (counted, rest) if count is not None), default=None)

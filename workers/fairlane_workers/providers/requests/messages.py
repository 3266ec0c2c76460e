"""Reads chats in OpenAI's form, for protocols with another form of images, calls of tools and results."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any, Literal, TypeAlias

from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.requests.media import Media, read_media, without_blanks

_WITHOUT_BLANKS = ("anthropic", "bedrock")

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

_ROLES: Mapping[object, Role] = {
    **{"system": "system", "developer": "system", "user": "user"},
    **{"assistant": "assistant", "tool": "tool"},
}


@dataclass(frozen=True, slots=True)
class Text:
    """A text. ``given`` is the part as it was written, which may say more, such as what to cache."""

    text: str
    given: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool that the model asked for. ``extra`` is what a provider added to it."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NativePart:
    """A part in the protocol's own form: it is sent as it is."""

    part: Mapping[str, Any]


Part: TypeAlias = Text | Media | NativePart


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message. A result of a tool names the ``answers``: the call's id, and ``tool``, its function.

    ``given`` is the message as it was written.
    """

    role: Role
    parts: tuple[Part, ...]
    given: Mapping[str, Any]
    calls: tuple[Call, ...] = ()
    answers: str = ""
    tool: str | None = None
    place: str = ""

    @property
    def text(self) -> str:
        """Its texts, a line each."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    def refuse_unknown(self, protocol: str) -> None:
        """Raise `UnmappableError` for a part that is neither text nor media: ``protocol`` has none."""
        for number, part in enumerate(self.parts):
            if isinstance(part, NativePart):
                place, kind = f"{self.place}.content[{number}]", part.part.get("type")
                raise UnmappableError(f'{place}: the protocol "{protocol}" has no part of the type {kind!r}')

    @property
    def media(self) -> list[Media]:
        """Its images, recordings and files."""
        return [part for part in self.parts if isinstance(part, Media)]


def read_messages(messages: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """The messages of a request. Raises `UnmappableError` that names the part which is malformed."""
    names: dict[str, str] = {}
    found = []
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        role = _ROLES.get(message.get("role"))
        if role is None:
            raise UnmappableError(
                f"{place}.role: {message.get('role')!r} is none of {', '.join(map(str, _ROLES))}"
            )
        calls = tuple(_calls(message.get("tool_calls"), f"{place}.tool_calls"))
        names |= {call.id: call.name for call in calls}
        answers = str(message.get("tool_call_id") or "")
        parts = tuple(_parts(message.get("content"), f"{place}.content"))
        tool = names.get(answers) or message.get("name")
        found.append(ChatMessage(role, parts, message, calls, answers, tool, place))
    return found


def _parts(content: object, place: str) -> Iterator[Part]:
    if content is None:
        return
    if isinstance(content, str):
        yield Text(content, {"type": "text", "text": content})
        return
    if not isinstance(content, list):
        raise UnmappableError(f"{place}: a text or a list of parts is expected")
    for number, part in enumerate(content):
        yield _part(part, f"{place}[{number}]")


def _part(part: object, place: str) -> Part:
    if not isinstance(part, Mapping):
        raise UnmappableError(f"{place}: a part is an object")
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text, part)
        case {"type": "refusal", "refusal": str(text)}:
            return Text(text, {"type": "text", "text": text})
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return read_media("image", url, place)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
            return Media(place, "audio", f"audio/{form}", without_blanks(data))
        case {"type": "file", "file": {"file_data": str(data), **rest}}:
            name = rest.get("filename")
            return read_media("file", data, place, name if isinstance(name, str) else None)
        case {"type": "file", "file": {"file_id": _}}:
            raise UnmappableError(f"{place}: file_id names a file that OpenAI keeps; give file_data")
        case {"type": "image_url" | "input_audio" | "file" as kind}:
            raise UnmappableError(f"{place}: a part of type {kind!r} has no {kind!r} in OpenAI's form")
    return NativePart(part)


def _calls(given: object, place: str) -> Iterator[Call]:
    if given is None:
        return
    if not isinstance(given, list):
        raise UnmappableError(f"{place}: a list is expected")
    for number, call in enumerate(given):
        match call:
            case {"function": {"name": str(name), **function}, **rest}:
                extra = rest.get("extra_content")
                yield Call(
                    str(rest.get("id") or f"call_{number}"),
                    name,
                    _arguments(function.get("arguments"), f"{place}[{number}].function.arguments"),
                    extra if isinstance(extra, Mapping) else {},
                )
            case _:
                raise UnmappableError(f'{place}[{number}]: {{"id": …, "function": …}} is expected')


def _arguments(given: object, place: str) -> Mapping[str, Any]:
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except (ValueError, RecursionError):
            raise UnmappableError(f"{place}: this is no JSON") from None
    if not isinstance(given, Mapping | None):
        raise UnmappableError(f"{place}: a JSON object is expected")
    return given or {}


def in_turns(messages: Sequence[ChatMessage], protocol: str) -> Iterator[tuple[ChatMessage, ...]]:
    """A chat by turn, as `spoken`: results of tools that were called together are one turn."""
    for results, group in groupby(spoken(messages, protocol), lambda message: message.role == "tool"):
        if results:
            yield tuple(group)
        else:
            yield from ((message,) for message in group)


def spoken(messages: Sequence[ChatMessage], protocol: str) -> list[ChatMessage]:
    """A chat without system messages, and without messages that say nothing: providers reject those.

    An answer that was cut before its first text is such a message in a history. Raises `UnmappableError` if
    the user says nothing at all.
    """
    said = [each for each in messages if each.role != "system" and not _is_empty(each, protocol)]
    if not any(each.role in ("user", "tool") for each in said):
        raise UnmappableError(
            f'messages: no message of the role "user" has content, which the protocol "{protocol}" needs; '
            "put what is asked into one"
        )
    return said


def _is_empty(message: ChatMessage, protocol: str) -> bool:
    if message.role == "tool" or message.calls:
        return False
    if protocol in _WITHOUT_BLANKS:
        return all(is_blank(part) for part in message.parts)
    return all(isinstance(part, Text) and not part.text for part in message.parts)


def is_blank(part: Part) -> bool:
    """Whether a part is a text without a visible sign: the protocols `_WITHOUT_BLANKS` reject it."""
    return isinstance(part, Text) and not part.text.strip()


def fitting_id(given: str, allowed: re.Pattern[str]) -> str:
    """The id of a call, or another in its place if the protocol's pattern does not allow it.

    Chats of other providers have ids such as ``functions.add:0``. A call and its result get the same one.
    """
    if not given or allowed.fullmatch(given):
        return given
    return f"call_{sha256(given.encode('utf-8', 'replace')).hexdigest()[:24]}"

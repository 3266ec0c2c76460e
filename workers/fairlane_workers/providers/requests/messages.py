"""Reads chats in OpenAI's form, for protocols with another form of images, calls of tools and results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from mimetypes import guess_type
from typing import Any, Literal, TypeAlias

from fairlane_workers.providers.dialect import UnmappableError

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

_ROLES: Mapping[object, Role] = {
    **{"system": "system", "developer": "system", "user": "user"},
    **{"assistant": "assistant", "tool": "tool"},
}
_DATA_URL = re.compile(r"data:(?P<type>[^;,]+)(?:;[^;,]+)*;base64,(?P<data>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Text:
    """A text. ``given`` is the part as it was written, which may say more, such as what to cache."""

    text: str
    given: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a recording or a file: base64 ``data``, or the ``url`` of one; ``place`` is for errors."""

    place: str
    kind: Literal["image", "audio", "file"]
    media_type: str | None
    data: str | None = None
    url: str | None = None
    name: str | None = None

    def unmappable(self, protocol: str, remedy: str) -> UnmappableError:
        """The error of a protocol that cannot take it."""
        return UnmappableError(f'{self.place}: the protocol "{protocol}" {remedy}')


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
        answers = message.get("tool_call_id") or ""
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
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return _media("image", url, place)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
            return Media(place, "audio", f"audio/{form}", data)
        case {"type": "file", "file": {"file_data": str(data), **rest}}:
            name = rest.get("filename")
            return _media("file", data, place, name if isinstance(name, str) else None)
        case {"type": "file", "file": {"file_id": _}}:
            raise UnmappableError(f"{place}: file_id names a file that OpenAI keeps; give file_data")
        case {"type": "image_url" | "input_audio" | "file" as kind}:
            raise UnmappableError(f"{place}: a part of type {kind!r} has no {kind!r} in OpenAI's form")
    return NativePart(part)


def _media(kind: Literal["image", "file"], url: str, place: str, name: str | None = None) -> Media:
    if found := _DATA_URL.fullmatch(url):
        return Media(place, kind, found["type"].lower(), found["data"], name=name)
    if url.startswith("data:") or "://" not in url:
        raise UnmappableError(f'{place}: an address or "data:<type>;base64,<data>" is expected')
    return Media(place, kind, guess_type(url.partition("?")[0])[0], url=url, name=name)


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
        except ValueError:
            raise UnmappableError(f"{place}: this is no JSON") from None
    if not isinstance(given, Mapping | None):
        raise UnmappableError(f"{place}: a JSON object is expected")
    return given or {}


def in_turns(messages: Sequence[ChatMessage]) -> Iterator[tuple[ChatMessage, ...]]:
    """A chat by turn, without system messages: results of tools that were called together are one turn."""
    spoken = [message for message in messages if message.role != "system"]
    for results, group in groupby(spoken, lambda message: message.role == "tool"):
        if results:
            yield tuple(group)
        else:
            yield from ((message,) for message in group)

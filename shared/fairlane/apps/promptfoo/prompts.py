"""Prompts: texts, chats and files of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.files import CODE, DATA, FILE, Files
from fairlane.apps.promptfoo.problems import Place, Problems
from fairlane.apps.promptfoo.templates import compiled
from fairlane.apps.promptfoo.yaml12 import YamlError, parse_yaml

TEXTS = frozenset((".txt", ".md", ".j2", ".prompt"))
SEPARATOR = "---"
"""A line between two prompts of one text file."""

SHOWN = 60
"""Characters of a prompt that name it where it has no label."""


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt as ``submit`` takes it: a user's message, or a chat."""

    label: str
    content: str | tuple[Mapping[str, str], ...]
    place: Place

    @property
    def texts(self) -> tuple[str, ...]:
        """The templates that it consists of."""
        return (self.content,) if isinstance(self.content, str) else tuple(m["content"] for m in self.content)


class PromptReader:
    """Reads prompts for one configuration."""

    def __init__(self, files: Files, problems: Problems) -> None:
        self._files, self._problems = files, problems

    def all(self, raw: Any, place: Place) -> list[PromptText]:
        """Every prompt of a configuration's ``prompts``."""
        found: list[PromptText] = []
        if isinstance(raw, list) and raw:
            for number, each in enumerate(raw):
                found.extend(self._one(each, place / number))
        elif isinstance(raw, str):
            found.extend(self._one(raw, place))
        elif isinstance(raw, Mapping):
            self._problems.add(place, "prompts by file name are not supported: write a list")
            return []
        else:
            self._problems.add(place, "there is no prompt")
        return [each for each in found if self._compiles(each)]

    def _one(self, raw: Any, place: Place) -> Iterator[PromptText]:
        label = None
        if isinstance(raw, Mapping):
            for name in raw.keys() - {"id", "label", "raw", "display"}:
                self._problems.add(place / name, f"{name} of a prompt is not supported")
            label = raw.get("label") or (raw.get("id") if "raw" in raw else None)
            key = "raw" if "raw" in raw else "id"
            raw, place = raw.get(key), place / key
        if not isinstance(raw, str) or not raw.strip():
            self._problems.add(place, "this is no prompt")
            return
        if raw.startswith(FILE) or self._is_path(raw, place):
            yield from self._of_file(raw, place, label)
            return
        content = self._content(raw, place)
        if content:
            yield PromptText(str(label or _named(raw)), content, place)

    def _of_file(self, reference: str, place: Place, label: Any) -> Iterator[PromptText]:
        path = self._files.find(reference, place)
        text = self._files.text(path, place) if path else None
        if path is None or text is None:
            return
        if path.suffix not in TEXTS | DATA:
            self._problems.add(place, f"a prompt in a {path.suffix or 'nameless'} file is not supported")
            return
        name = str(label or path.name)
        parts = _split(text) if path.suffix in TEXTS else [text]
        for number, part in enumerate(parts, start=1):
            content = self._content(part, Place(path), data=path.suffix in DATA)
            if content:
                yield PromptText(name if len(parts) == 1 else f"{name} #{number}", content, Place(path))

    def _content(
        self, text: str, place: Place, *, data: bool = False
    ) -> str | tuple[Mapping[str, str], ...] | None:
        """A chat where the text is one, else the text; ``None`` after a problem."""
        stripped = text.strip()
        if not data and not stripped.startswith(("[", "- role:")):
            return text
        try:
            chat = json.loads(stripped) if stripped.startswith(("[", "{")) else parse_yaml(stripped)
        except (ValueError, YamlError, RecursionError):
            if "role" in stripped and "content" in stripped:
                self._problems.add(
                    place, "a chat whose messages are made by a template is not supported: write each message"
                )
                return None
            return text
        if data and isinstance(chat, str):
            return chat
        return self._chat(chat, place) if data or _is_chat(chat) else text

    def _chat(self, chat: Any, place: Place) -> tuple[Mapping[str, str], ...] | None:
        if not _is_chat(chat):
            self._problems.add(place, "this is no list of messages with role and content")
            return None
        messages: list[Mapping[str, str]] = []
        for number, message in enumerate(chat):
            if message.keys() - {"role", "content"} or not isinstance(message.get("content"), str):
                self._problems.add(
                    place / number,
                    "a message has a role and a text; parts, names and tools are not supported",
                )
                return None
            messages.append({"role": str(message["role"]), "content": message["content"]})
        return tuple(messages)

    def _compiles(self, prompt: PromptText) -> bool:
        found = [compiled(text, prompt.place, self._problems) for text in prompt.texts]
        return None not in found

    def _is_path(self, text: str, place: Place) -> bool:
        if len(text.split()) != 1 or "{{" in text:
            return False
        suffix = Path(text.partition(":")[0]).suffix
        return suffix in CODE or (suffix in TEXTS | DATA and (place.file.parent / text).is_file())


def _split(text: str) -> list[str]:
    parts: list[list[str]] = [[]]
    for line in text.splitlines(keepends=True):
        if line.strip() == SEPARATOR:
            parts.append([])
        else:
            parts[-1].append(line)
    return [joined for part in parts if (joined := "".join(part).strip())]


def _is_chat(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, Mapping) and isinstance(each.get("role"), str) for each in value)
    )


def _named(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"

"""Prompts: texts, chats, files of them, and programs that make them."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.programs.programs import is_program, split_reference
from fairlane.apps.promptfoo.reading.chats import is_chat
from fairlane.apps.promptfoo.reading.places import CODE, DATA, FILE, Place, is_pattern, with_texts
from fairlane.apps.promptfoo.reading.templates import compiled, translated
from fairlane.apps.promptfoo.reading.yaml12 import YamlError, parse_yaml

TEXTS = frozenset((".txt", ".md", ".j2", ".prompt"))
LISTS = frozenset((".csv", ".jsonl"))
SEPARATOR = "---"
"""A line between two prompts of one text file."""

SHOWN = 60
"""Characters of a prompt that name it where it has no label."""

_KEYS = frozenset(("id", "label", "raw", "display", "config"))
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")
_STORES = frozenset(("langfuse", "portkey", "helicone"))


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt. Workers render ``content``, a user's message or a chat, for each row.

    If ``made``, they cannot: a program or a template makes its messages, or they have parts. Then this
    process renders it from ``raw`` or by ``program``. ``config`` has its own parameters.
    """

    label: str
    content: str | tuple[Mapping[str, str], ...]
    place: Place
    raw: str = ""
    made: bool = False
    program: tuple[Path, str | None] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def texts(self) -> tuple[str, ...]:
        """The templates that workers render."""
        if self.made:
            return ()
        return (self.content,) if isinstance(self.content, str) else tuple(m["content"] for m in self.content)


def read_prompts(raw: Any, place: Place) -> list[PromptText]:
    """Every prompt of a configuration's ``prompts``."""
    found: list[PromptText] = []
    if isinstance(raw, list) and raw:
        for number, each in enumerate(raw):
            found.extend(_one(each, place / number))
    elif isinstance(raw, str):
        found.extend(_one(raw, place))
    elif isinstance(raw, Mapping) and raw:
        for name, label in raw.items():
            found.extend(_one({"raw": name, "label": str(label)}, place / name, place))
    else:
        place.refuse("there is no prompt")
    return [each for each in found if _compiles(each)]


def prompt_of(raw: str, place: Place, label: Any = None) -> list[PromptText]:
    """The prompt of a text, which may be a chat; empty after a problem."""
    found = _prompt(str(label or _named(raw)), raw, place)
    return [each for each in found if _compiles(each)]


def _one(raw: Any, place: Place, said: Place | None = None) -> Iterator[PromptText]:
    label: Any = None
    config: Mapping[str, Any] = {}
    if isinstance(raw, Mapping):
        place.check_names(raw, "a prompt", _KEYS)
        own, where = (place / "config").referred(raw.get("config"))
        config = where.mapping(own)
        label = raw.get("label") or (raw.get("id") if "raw" in raw else None)
        key = "raw" if "raw" in raw else "id"
        raw, place = raw.get(key), said or place / key
    if not isinstance(raw, str) or not raw.strip():
        place.refuse("this is no prompt")
        return
    for each in _texts(raw.strip(), raw, place, label):
        yield replace(each, config=config, made=True) if config else each


def _texts(name: str, raw: str, place: Place, label: Any) -> Iterator[PromptText]:
    if _is_path(name):
        if is_pattern(name) and not is_program(name):
            for path in place.matching(name):
                yield from _of_path(path, place, None)
        elif is_program(name):
            yield from _of_program(name, place, label)
        elif found := place.find(name):
            yield from _of_path(found, place, label)
    elif _SCHEME.match(name):
        _refuse_scheme(name, place)
    else:
        yield from _prompt(str(label or _named(raw)), raw, place)


def _refuse_scheme(name: str, place: Place) -> None:
    scheme = name.partition("://")[0]
    store = f"prompts kept by {scheme} are not fetched" if scheme in _STORES else f"{scheme}:// is not read"
    place.refuse(f"the prompt {name!r} is not supported, {store}: save it as a file and name that")


def _of_program(reference: str, place: Place, label: Any) -> Iterator[PromptText]:
    program = place.program(reference)
    if program:
        name = str(label or split_reference(reference)[0])
        yield PromptText(name, "", place, made=True, program=program)


def _of_path(path: Path, place: Place, label: Any) -> Iterator[PromptText]:
    text = place.text(path)
    if text is None:
        return
    if path.suffix in CODE:
        yield from _of_program(str(path), place, label)
        return
    if path.suffix not in TEXTS | DATA | LISTS:
        place.refuse(f"a prompt in a {path.suffix or 'nameless'} file is not supported")
        return
    name, where = str(label or path.name), place.within(path)
    if path.suffix == ".csv":
        listed = list(_listed(text))
    elif path.suffix == ".jsonl":
        listed = [("", line) for line in text.split("\n") if line.strip()]
    else:
        parts = _split(text) if path.suffix in TEXTS else [text]
        listed = [("", part) for part in parts]
    for number, (own, part) in enumerate(listed, start=1):
        shown = own or (name if len(listed) == 1 else f"{name} #{number}")
        yield from _prompt(shown, part, where, data=path.suffix in DATA)


def _prompt(label: str, text: str, place: Place, *, data: bool = False) -> Iterator[PromptText]:
    """A chat where the text is one, else a user's message."""
    text = translated(text)
    stripped = text.strip()
    if not data and not stripped.startswith(("[", "{", "- role:")):
        yield PromptText(label, text, place, raw=text)
        return
    try:
        document = json.loads(stripped) if stripped.startswith(("[", "{")) else parse_yaml(stripped)
    except (ValueError, YamlError, RecursionError):
        chat = "role" in stripped and stripped.startswith(("[", "{", "- role:"))
        yield PromptText(label, text, place, raw=text, made=chat)
        return
    if data and isinstance(document, str):
        yield PromptText(label, document, place, raw=document)
    elif is_chat(document) and all(_is_plain(each) for each in document):
        messages = tuple({"role": str(m["role"]), "content": m["content"]} for m in document)
        yield PromptText(label, messages, place, raw=json.dumps(document, ensure_ascii=False))
    elif isinstance(document, Mapping) or is_chat(document) or (data and isinstance(document, list)):
        written = json.dumps(with_texts(document, place, _contents), ensure_ascii=False)
        yield PromptText(label, written, place, raw=written, made=True)
    else:
        yield PromptText(label, text, place, raw=text)


def _contents(text: str, place: Place) -> str | None:
    """The contents of the file that a chat's text names as ``file://…``; else the text."""
    if not text.startswith(FILE) or "{{" in text:
        return text
    path = place.find(text)
    return None if path is None else place.text(path)


def _compiles(prompt: PromptText) -> bool:
    templates = (prompt.raw,) if prompt.made and not prompt.program else prompt.texts
    found = [compiled(text, prompt.place) for text in templates]
    return None not in found


def _is_path(text: str) -> bool:
    """Whether a text looks like a path or a pattern, whether or not the file exists."""
    if text.startswith(FILE):
        return True
    if "\n" in text or "{{" in text or _SCHEME.match(text):
        return False
    suffix = Path(split_reference(text)[0]).suffix
    if suffix in CODE | TEXTS | DATA | LISTS:
        return True
    return len(text.split()) == 1 and ("/" in text or "*" in text)


def _is_plain(message: Mapping[str, Any]) -> bool:
    return not message.keys() - {"role", "content"} and isinstance(message.get("content"), str)


def _listed(text: str) -> Iterator[tuple[str, str]]:
    """Label and prompt of each row of a CSV file; without a column ``prompt``, each line is a prompt."""
    rows = list(csv.reader(io.StringIO(text, newline=""), skipinitialspace=True))
    header = [each.strip() for each in rows[0]] if rows else []
    if len(header) > 1 and "prompt" in header:
        for row in rows[1:]:
            named: Mapping[str, str] = dict(zip(header, (each.strip() for each in row), strict=False))
            if named.get("prompt"):
                yield named.get("label", ""), named["prompt"]
        return
    lines = [line for line in text.split("\n") if line.strip()]
    for line in lines[1 if lines and lines[0].strip().lower() == "prompt" else 0 :]:
        yield "", line


def _split(text: str) -> Sequence[str]:
    parts: list[list[str]] = [[]]
    for line in text.splitlines(keepends=True):
        if line.strip() == SEPARATOR:
            parts.append([])
        else:
            parts[-1].append(line)
    return [joined for part in parts if (joined := "".join(part).strip())]


def _named(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"

"""Reads README and guides for tests: code blocks, commands, tables and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDES = (README, *sorted((ROOT / "docs").glob("*.md")))
DECISIONS = tuple(sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")))
DECISION_INDEX = ROOT / "docs" / "decisions" / "README.md"

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block: its first line, its language, its text."""

    path: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def blocks(path: Path, language: str, section: str | None = None) -> list[Block]:
    """The document's code blocks in a language; ``heading`` selects those below one second-level heading."""
    text, found = path.read_text(encoding="utf-8"), []
    for fence in _FENCE.finditer(text):
        above = re.findall(r"^## (.+)$", _FENCE.sub("", text[: fence.start()]), re.MULTILINE)
        if fence[1] == language and section in (None, *above[-1:]):
            found.append(Block(path, text.count("\n", 0, fence.start()) + 1, language, fence[2]))
    return found


def commands(path: Path) -> Iterator[list[str]]:
    """The words of each simple command, in shell blocks, after prompts, and in inline code."""
    for language in ("bash", "sh"):
        for block in blocks(path, language):
            for line in block.text.replace("\\\n", " ").splitlines():
                yield from _simple_commands(line)
    for block in blocks(path, "console"):
        for line in block.text.splitlines():
            if line.startswith("$ "):
                yield from _simple_commands(line.removeprefix("$ "))
    for code in _CODE.findall(_prose(path).replace("\n", " ")):
        if code.startswith(("fairlane ", "make ")):
            yield from _simple_commands(code)


def links(path: Path) -> list[str]:
    """The targets of links and pictures that point into the repository."""
    return [target for target in _LINK.findall(_prose(path)) if "://" not in target]


def anchors(path: Path) -> set[str]:
    """The anchors that a link may name after ``#``: headings, as slugs of the usual form."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(_prose(path))
    }


def headings(path: Path) -> list[str]:
    """The headings in order, with their ``#`` marks."""
    return [line for line in _prose(path).splitlines() if line.startswith("#")]


def table(path: Path, *columns: str) -> list[dict[str, str]]:
    """The rows of the only table whose header begins with ``columns``, as written."""
    found = _tables(path, columns)
    assert len(found) == 1, f"{path.name} has {len(found)} tables that begin with {columns}"
    return found[0]


def tables(path: Path, *columns: str) -> list[dict[str, str]]:
    """The rows of all tables whose header begins with ``columns``, in order. There must be at least one."""
    found = _tables(path, columns)
    assert found, f"{path.name} has no table that begins with {columns}"
    return [row for rows in found for row in rows]


def coded(cell: str) -> list[str]:
    """The pieces of inline code in a cell or sentence."""
    return _CODE.findall(cell)


def _tables(path: Path, columns: tuple[str, ...]) -> list[list[dict[str, str]]]:
    lines = _prose(path).splitlines()
    starts = [i for i, line in enumerate(lines) if tuple(_cells(line)[: len(columns)]) == columns]
    return [list(_rows(lines[start:])) for start in starts]


def _rows(lines: list[str]) -> Iterator[dict[str, str]]:
    """The rows of the table at the beginning of ``lines``."""
    names = _cells(lines[0])
    for line in takewhile(lambda line: line.startswith("|"), lines[2:]):
        yield dict(zip(names, _cells(line), strict=True))


def _cells(line: str) -> list[str]:
    if not line.startswith("|"):
        return []
    return [cell.strip() for cell in _CELL.split(line)[1:-1]]


def _prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def _simple_commands(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not words and _ASSIGNMENT.match(word):
            continue
        if set(word) <= set(";|&()<>"):
            if words:
                yield words
            words = []
        else:
            words.append(word)

"""README and guides as a test reads them: code blocks, commands, tables and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDES = (README, *sorted((ROOT / "docs").glob("*.md")))
DECISIONS = tuple(sorted((ROOT / "docs" / "decisions").glob("*.md")))

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where it begins, its language, its text."""

    path: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def blocks(path: Path, language: str, section: str | None = None) -> list[Block]:
    """The document's blocks of a language, or those below one second-level heading."""
    text, found = path.read_text(encoding="utf-8"), []
    for fence in _FENCE.finditer(text):
        above = re.findall(r"^## (.+)$", _FENCE.sub("", text[: fence.start()]), re.MULTILINE)
        if fence[1] == language and section in (None, *above[-1:]):
            found.append(Block(path, text.count("\n", 0, fence.start()) + 1, language, fence[2]))
    return found


def commands(path: Path) -> Iterator[list[str]]:
    """Words of every simple command: of shell blocks, after prompts, and inline code that begins like one."""
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
    """Targets of links and pictures that stay within the repository."""
    return [target for target in _LINK.findall(_prose(path)) if "://" not in target]


def anchors(path: Path) -> set[str]:
    """What a link may name after ``#``: headings, as hosts of Markdown slug them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(_prose(path))
    }


def headings(path: Path) -> list[str]:
    """Headings in order, with their marks."""
    return [line for line in _prose(path).splitlines() if line.startswith("#")]


def table(path: Path, *columns: str) -> list[dict[str, str]]:
    """Rows of the one table whose header begins with ``columns``; cells as they are written."""
    lines = _prose(path).splitlines()
    starts = [i for i, line in enumerate(lines) if tuple(_cells(line)[: len(columns)]) == columns]
    assert len(starts) == 1, f"{path.name} has {len(starts)} tables that begin with {columns}"
    names, rows = _cells(lines[starts[0]]), []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(names, _cells(line), strict=True)))
    return rows


def coded(cell: str) -> list[str]:
    """The pieces of code in a raw cell or sentence."""
    return _CODE.findall(cell)


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

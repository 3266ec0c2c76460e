"""Known questions and answers: finds the question in a prompt, and compares answers by their last number."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fairlane.core.errors import ConfigurationError

FINAL_MARK = "####"
KEY_CHARS = 24

_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"(?<![\w)])-?\d[\d,]*(?:\.\d+)?|\d[\d,]*(?:\.\d+)?")
_LABEL = re.compile(r"^[ \t]*(question|expected|answer)[ \t]*:", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Known:
    """A question, with white space collapsed, and the final answer of its solution."""

    question: str
    answer: str


class AnswerBook:
    """Known questions by their first characters: a look-up is linear in the prompt, not in the book."""

    def __init__(self, entries: list[Known]) -> None:
        self._key_chars = min([KEY_CHARS, *(len(entry.question) for entry in entries)])
        self._by_key: dict[str, list[Known]] = {}
        for entry in entries:
            self._by_key.setdefault(entry.question[: self._key_chars], []).append(entry)

    @classmethod
    def from_jsonl(cls, path: Path) -> AnswerBook:
        """Read rows with ``question`` and ``answer``. Raises ``ConfigurationError`` naming the line."""
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                "answers_file", str(path), str(error), "Give a readable JSONL file."
            ) from error
        entries = [_entry(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
        if not entries:
            raise ConfigurationError("answers_file", str(path), "it has no rows", "Give one row a question.")
        return cls(entries)

    def find(self, prompt: str) -> Known | None:
        """The last known question that ``prompt`` contains in full; worked examples come before it."""
        text = _collapsed(prompt)
        words = [word.start() for word in _WORD.finditer(text)]
        # Only every position finds a question that follows another character at once, as in ``Q:Why``.
        everywhere = range(len(text) - self._key_chars, -1, -1)
        return self._at(text, reversed(words)) or self._at(text, everywhere)

    def _at(self, text: str, places: Iterable[int]) -> Known | None:
        """The known question at the first of these places that has one."""
        for begin in places:
            for entry in self._by_key.get(text[begin : begin + self._key_chars], ()):
                if text.startswith(entry.question, begin):
                    return entry
        return None


def last_number(text: str) -> float | None:
    """The last number in ``text``, without thousands separators; ``None`` without a number."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def answer_agrees(prompt: str) -> bool:
    """Whether the values of the prompt's last ``Expected:`` and ``Answer:`` lines agree.

    They agree if their last numbers are equal; if neither has a number, if their texts are. They disagree if
    a line is missing.
    """
    sections = _labelled(prompt)
    if "expected" not in sections or "answer" not in sections:
        return False
    expected, answer = _final(sections["expected"]), _final(sections["answer"])
    expected_number, number = last_number(expected), last_number(answer)
    if expected_number is None and number is None:
        return expected.strip().casefold() == answer.strip().casefold()
    return expected_number == number


def _labelled(prompt: str) -> dict[str, str]:
    labels = list(_LABEL.finditer(prompt))
    ends = [*(label.start() for label in labels), len(prompt)][1:]
    return {label[1].lower(): prompt[label.end() : end] for label, end in zip(labels, ends, strict=True)}


def _final(section: str) -> str:
    """The final answer of a section: the rest of the line after the last mark, else its first paragraph."""
    if FINAL_MARK in section:
        return section.rpartition(FINAL_MARK)[2].partition("\n")[0]
    return section.strip().partition("\n\n")[0]


def _collapsed(text: str) -> str:
    return " ".join(text.split())


def _entry(path: Path, number: int, line: str) -> Known:
    try:
        row = json.loads(line)
        question, answer = row["question"], row["answer"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"answers_file, line {number}",
            str(path),
            f"no question and answer there ({error!r})",
            "Write one JSON object with both a line.",
        ) from error
    known = Known(_collapsed(str(question)), str(answer).rpartition(FINAL_MARK)[2].strip())
    if not (known.question and known.answer):
        raise ConfigurationError(
            f"answers_file, line {number}", str(path), "question or answer is empty", "Fill in both."
        )
    return known

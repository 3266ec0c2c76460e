"""Questions and their known answers: which one a prompt asks, and whether an answer's number is right."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from fairlane.errors import ConfigurationError

FINAL_MARK = "####"
KEY_CHARS = 24

_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"(?<![\w)])-?\d[\d,]*(?:\.\d+)?|\d[\d,]*(?:\.\d+)?")
_LABEL = re.compile(r"^[ \t]*(question|expected|answer)[ \t]*:", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Known:
    """A question, with white space collapsed, and the answer that ends its solution."""

    question: str
    answer: str


class AnswerBook:
    """Known questions by their first characters: a look-up costs the prompt's length, not the book's."""

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
        """The last known question that stands in ``prompt`` in full; examples come before it."""
        text = _collapsed(prompt)
        for word in reversed(list(_WORD.finditer(text))):
            begin = word.start()
            for entry in self._by_key.get(text[begin : begin + self._key_chars], ()):
                if text.startswith(entry.question, begin):
                    return entry
        return self._inside_a_word(text)

    def _inside_a_word(self, text: str) -> Known | None:
        """A question glued to what precedes it, as in ``Q:Why``: tries every position, so it comes last."""
        for begin in range(len(text) - self._key_chars, -1, -1):
            for entry in self._by_key.get(text[begin : begin + self._key_chars], ()):
                if text.startswith(entry.question, begin):
                    return entry
        return None


def last_number(text: str) -> float | None:
    """The last number in ``text``, thousands separators ignored; ``None`` where there is none."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def answer_agrees(prompt: str) -> bool:
    """Whether the values of the prompt's last ``Expected:`` and ``Answer:`` lines agree.

    They agree if their final numbers are equal, or, where neither has one, their texts. Without both lines
    they do not.
    """
    sections = _labelled(prompt)
    if "expected" not in sections or "answer" not in sections:
        return False
    expected, answer = _final(sections["expected"]), _final(sections["answer"])
    wanted, given = last_number(expected), last_number(answer)
    if wanted is None and given is None:
        return expected.strip().casefold() == answer.strip().casefold()
    return wanted == given


def _labelled(prompt: str) -> dict[str, str]:
    labels = list(_LABEL.finditer(prompt))
    ends = [*(label.start() for label in labels), len(prompt)][1:]
    return {label[1].lower(): prompt[label.end() : end] for label, end in zip(labels, ends, strict=True)}


def _final(section: str) -> str:
    """What counts of a section: the rest of the line after the last mark, else its first paragraph."""
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

"""Finds the verdict in a judge's words: a choice that is said decisively, never one that prose mentions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from fairlane.evaluators.phrases import (
    ASKING,
    BOXES,
    BULLET,
    BUT,
    CLAUSE_CHARS,
    CONCLUDING,
    ENDED,
    FOLLOWED,
    HEADING,
    LABEL,
    LOOSE_LABEL,
    MARKUP,
    MISLEADING,
    MOST_LABELS,
    NO,
    NOT,
    OF_ANOTHER,
    PLAIN,
    POLAR,
    RATING,
    REASON,
    RETRACTION,
    SAID,
    SENTENCE_END,
    SHORT_LABELS,
    SIGNS,
    TAGS,
    TAKEN_BACK,
    WORD,
)

MAX_CHARS = 100_000
"""Characters of an answer that are read: a bound for hostile judges. A longer answer has no verdict."""


@dataclass(frozen=True, slots=True)
class Mention:
    """Where a casefolded text names a choice."""

    choice: str
    start: int
    end: int


class Choices:
    """Finds choices as whole words, longest first, so that "not correct" is not "correct".

    A number is no whole word inside a decimal or after a minus or a slash: "4/5" names 4 alone.
    """

    def __init__(self, choices: tuple[str, ...]) -> None:
        self._by_key = {_key(choice): choice for choice in choices if choice.strip()}
        keys = sorted(self._by_key, key=len, reverse=True)
        either = "|".join(re.escape(key).replace(r"\ ", r"\s+") for key in keys) or r"(?!)"
        self._word = re.compile(
            rf"(?<![^\W_])(?<![-−])(?<!\d[.,/])(?:(?<![.,])|(?!\d))(?:{either})(?![^\W_])(?![.,]\d)"
        )
        numbers = [int(key) for key in keys if key.isascii() and key.isdigit()]
        top, unit = max(numbers, default=0), r"(?:\s*(?:points?|stars?|pts?)\b)?"
        scale = rf"[*_`]{{0,3}}{unit}(?:\s*/|\s*\(?out of)\s*{top}(?![\w/])(?![.,]\d){unit}\)?"
        self._of_top = re.compile(
            rf"(?<![\w.,/-])(\d{{1,9}})(?:{scale}|\s*(?:stars?|points?)\b)" if len(numbers) > 1 else r"(?!)()"
        )

    @staticmethod
    @lru_cache(maxsize=256)
    def of(choices: tuple[str, ...]) -> Choices:
        """What finds these choices, made once."""
        return Choices(choices)

    def named_in(self, text: str) -> set[str]:
        """All choices that an answer mentions, in whatever sense."""
        return {mention.choice for mention in self.mentions(text.casefold())}

    def mentions(self, text: str) -> list[Mention]:
        """Every mention of a choice in a casefolded text, in order."""
        found = self._word.finditer(text)
        return [Mention(self._by_key[_key(word.group())], word.start(), word.end()) for word in found]

    def verdict(self, answer: str) -> str | None:
        """The choice that an answer decides for; ``None`` if it decides for none, or for two.

        What marks a verdict comes first: an answer or its last or first line that is a choice alone, a
        label, or a box. Without any, the answer begins with its verdict, or a sentence of it says no more.
        """
        if len(answer) > MAX_CHARS:
            return None
        text = self._plain(answer)
        if (whole := self._alone(text)) is not None:
            return whole
        marked = self._marked(text)
        if marked is not None:
            return marked.pop() if len(marked) == 1 else None
        said = {*self._after_other_label(text), *self._first_word(text), *self._spoken(text)}
        return said.pop() if len(said) == 1 else None

    def _plain(self, answer: str) -> str:
        """Casefolded, without markup that has words of its own; a rating out of the scale's top alone."""
        text = "\n".join(answer.strip().casefold().replace("’", "'").splitlines())
        text = TAGS.sub(
            lambda tag: "\n" if tag[1] else f"\n{tag[2].replace('_', ' ')}: ", MARKUP.sub("", text)
        )
        text = HEADING.sub(r"\1: ", self._of_top.sub(r"\1", text))
        return text.strip()

    def _alone(self, line: str) -> str | None:
        """The choice that is all of a text but signs, perhaps said twice."""
        line = BOXES.sub(lambda box: f" {box[1] or box[2]} ", line)
        bullet = BULLET.match(line)
        line = line[bullet.end() :] if bullet else line
        mentions = self.mentions(line)
        if len({mention.choice for mention in mentions}) != 1:
            return None
        ends = [0, *(mention.end for mention in mentions)]
        starts = [*(mention.start for mention in mentions), len(line)]
        between = [line[end:start] for end, start in zip(ends, starts, strict=True)]
        if not all(SIGNS.fullmatch(gap) for gap in between) or MISLEADING.search("x".join(between)):
            return None
        return mentions[0].choice

    def _marked(self, text: str) -> set[str] | None:
        """What all marks of a verdict say: several choices are none. ``None`` without any mark."""
        labels = [*islice(LABEL.finditer(text), MOST_LABELS + 1)]
        if len(labels) > MOST_LABELS:
            return set()
        found, final, unreadable = set[str](), set[str](), False
        for label in labels:
            value = text[label.end() :].partition("\n")[0].strip()
            choice = self._alone(value) or self._leading(value, labelled=True)
            if choice is not None:
                (final if label["final"] or label["last"] or label["overall"] else found).add(choice)
            elif value and label["name"] in SHORT_LABELS:
                unreadable |= self._only_says(next(iter(_sentences(value)), ""), alone=True) is None
        if final:
            return final
        found.update(self._loosely_labelled(text))
        found.update(choice for box in BOXES.finditer(text) if (choice := self._alone(box[1] or box[2])))
        found.update(self._line_alone(text))
        return found or (set() if unreadable else None)

    def _loosely_labelled(self, text: str) -> Iterator[str]:
        """What labels inside a sentence say: "on reflection, verdict: no" takes an earlier label back."""
        for label in islice(LOOSE_LABEL.finditer(text), MOST_LABELS):
            value = text[label.end() :].partition("\n")[0].strip()
            choice = self._alone(value) or self._leading(value, labelled=True)
            clause = re.split(r"[,;.!?\n]", text[max(0, label.start() - CLAUSE_CHARS) : label.start()])[-1]
            if choice is not None and not _negates(clause) and not OF_ANOTHER.search(clause):
                yield choice

    def _line_alone(self, text: str) -> Iterator[str]:
        """The last line if it is a choice alone, or else the first one.

        A line that goes on with a sentence is no line of its own. Two choices in a row are a list.
        """
        lines = [line.strip() for line in text.split("\n") if not SIGNS.fullmatch(line) or not line]
        full = [n for n, line in enumerate(lines) if line]
        if len(full) < 2:
            return
        last, before = self._alone(lines[full[-1]]), lines[full[-2]]
        if last is not None:
            continued = full[-2] == full[-1] - 1 and not ENDED.search(before) and _negates(before)
            if not continued and self._alone(before) in (None, last):
                yield last
            return
        first, rest = self._alone(lines[0]), "\n".join(lines[1:])
        if first is not None and RETRACTION.search(rest) and self._others(rest, first):
            return
        if first is not None and (not lines[1] or ENDED.search(lines[0]) or not _goes_on(lines[1])):
            yield first

    def _after_other_label(self, text: str) -> Iterator[str]:
        """The choice after the colon of the last line, where nothing that has a colon says another one."""
        lines = [line for line in text.split("\n") if line.strip()]
        values = {
            choice
            for line in lines
            if ":" in line and (choice := self._alone(line.rpartition(":")[2])) is not None
        }
        label, colon, value = lines[-1].rpartition(":") if lines else ("", "", "")
        choice = self._alone(value) if colon else None
        clause = re.split(r"[,;.!?]", label)[-1]
        if choice is None or values != {choice} or _negates(clause) or OF_ANOTHER.search(clause):
            return
        yield choice

    def _first_word(self, text: str) -> Iterator[str]:
        choice = self._leading(text)
        if choice is not None:
            yield choice

    def _leading(self, text: str, *, labelled: bool = False) -> str | None:
        """The choice that a text begins with, where a sign ends it and nothing after it takes it back."""
        mentions = self.mentions(text)
        if not mentions or not SIGNS.fullmatch(text[: mentions[0].start]):
            return None
        first = mentions[0]
        if MISLEADING.search(f"{text[: first.start]}x"):
            return None
        followed = FOLLOWED.match(text, first.end)
        if followed is None:
            return None
        sign, rest = followed["sign"].strip(" "), text[followed.end() :].strip()
        key, polar = _key(first.choice), _key(first.choice) in POLAR
        ended, reasoned = sign in (".", "!", "\n"), sign in ("because", "since")
        if not polar and (sign == ":" or (sign == "." and rest and not labelled and key.isdigit())):
            return None  # a label, or the number of a list
        if key == "no" and sign == "." and rest[:1].isdigit():  # No. 5
            return None
        if labelled and (ended or reasoned):
            if TAKEN_BACK.match(rest):
                return None
        elif self._others(rest, first.choice):
            return None
        if RETRACTION.search(rest):
            return None
        if polar or reasoned or key.isdigit():
            return first.choice
        sentence = next(iter(_sentences(rest)), "")
        begins = " ".join(sentence.split()[:2])
        taken_back = _negates(begins) if ended else _negates(sentence) or BUT.search(sentence)
        return None if taken_back else first.choice

    def _others(self, text: str, choice: str) -> bool:
        """Whether a text names another choice. "No" before a word is none: "no mistake"."""
        return any(
            mention.choice != choice
            and not (_key(mention.choice) == "no" and not NO.match(text, mention.start))
            for mention in self.mentions(text)
        )

    def _spoken(self, text: str) -> Iterator[str]:
        """The verdict that the first or the last sentence says, where the others do not speak against it."""
        sentences = _sentences(text)
        if not sentences:
            return
        first = self._only_says(REASON.split(sentences[0])[0], alone=len(sentences) == 1)
        rest = " ".join(sentences[1:])
        if first is not None and not (
            self._others(sentences[0], first)
            or _negates(rest)
            or BUT.search(rest)
            or RETRACTION.search(rest)
            or self._others(rest, first)
        ):
            yield first
        if len(sentences) > 1 and not sentences[-2].endswith(":"):
            last, before = self._only_says(sentences[-1]), " ".join(sentences[:-1])
            words = WORD.findall(sentences[-1])[:2]
            if last is not None and (not CONCLUDING.isdisjoint(words) or not self._others(before, last)):
                yield last
        conclusion = re.search(r"[,;]\s*((?:so|thus|therefore|hence)\b[^,;]*)$", sentences[-1])
        if conclusion is not None:
            choice = self._only_says(conclusion[1])
            if choice is not None:
                yield choice

    def _only_says(self, sentence: str, *, alone: bool = False) -> str | None:
        """The choice that a sentence ends with, if all of its other words are plain ones."""
        label = LABEL.match(sentence)
        sentence = sentence[label.end() :] if label else sentence
        mentions = self.mentions(sentence)
        if not mentions or len({mention.choice for mention in mentions}) > 1:
            return None
        named = mentions[-1]
        before, after = sentence[: named.start], sentence[named.end :]
        if not SIGNS.fullmatch(after) or MISLEADING.search(f"x {after}"):
            return None
        signs = WORD.sub(" ", before)
        if not SIGNS.fullmatch(signs) or MISLEADING.search(f"{signs}x") or ":" in signs:
            return None
        words = WORD.findall(SAID.sub("i say", before))
        begins = next((word for word in words if word not in CONCLUDING), "")
        if not words or begins in ASKING or not PLAIN.issuperset(words):
            return None
        key = _key(named.choice)
        stated = not RATING.isdisjoint(words) or not CONCLUDING.isdisjoint(words[:1])
        if not stated and any(map(str.isdigit, key)):
            return None  # "The answer is 4" may answer the question
        if not stated and not alone and (key in POLAR or sum(map(str.isalnum, key)) < 2):
            return None
        return named.choice


def _goes_on(line: str) -> bool:
    """Whether a line goes on with the sentence of the line before."""
    word = WORD.search(line)
    return word is not None and (word.group() in ASKING or _negates(word.group()))


def _sentences(text: str) -> list[str]:
    return [each.strip() for each in SENTENCE_END.split(text) if each and WORD.search(each)]


def _negates(text: str) -> bool:
    return NOT.search(text) is not None or NO.search(text) is not None


def _key(choice: str) -> str:
    return " ".join(choice.casefold().split())

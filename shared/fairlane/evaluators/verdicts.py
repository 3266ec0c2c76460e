"""Finds the verdict in a judge's text: a choice that it states decisively, not one that it only mentions."""

import re
from collections.abc import Iterator
from itertools import islice

from fairlane.evaluators.mentions import UNSPACED, Choices
from fairlane.evaluators.sentences import DOUBT, TAKEN_BACK, closing, opening

MAX_CHARS = 100_000
"""Characters of an answer that are read: a bound for hostile judges. A longer answer has no verdict."""

MOST_LABELS = 100
"""Labels of an answer beyond which it has no verdict: a bound for hostile judges."""

_NAMES = r"(?:verdict|rating|score|grade|judge?ment|decision|choice)"
_ONE_WORD = r"(?=[^\w\n]{1,9}\w+[^\w\n]*$)"
"""After a label that prose has, too: "Overall: 4", but not "Overall: The sum is right"."""

_LABEL = re.compile(
    rf"""
    (?:
        (?:^|(?<=[^\w\s:/-])) (?:[^\w\n/]|_){{0,20}}  # at the start of a line or a clause: "- **"
        (?:(?:my|the|your|so|therefore|thus|hence)[ ,]{{1,3}}){{0,2}}
        (?:
            (?P<final>(?:final|overall)[ _](?:{_NAMES}|answer|result)|(?:overall|final){_ONE_WORD})
          | {_NAMES} | conclusion{_ONE_WORD}
        )
        (?:
            ["'*_`)]*[ ]?(?:is[ ]?)?[:=]  # "verdict**:", "verdict is:"
          | [*_]*[ ]+(?=[-–—][ ])         # "verdict - "
          | [ *_]*$                       # all of a heading
        )
      | <(?:final_|overall_)?(?:{_NAMES}|answer)>
    )
    (?=\s*(?P<value>[^\n<]*))
    """,
    re.MULTILINE | re.VERBOSE,
)
"""A label of a verdict and its value: "**Final verdict:** correct", "<score>4</score>"."""

_OF_ANOTHER = re.compile(
    r"\b(?:expected|reference|correct answer|right answer|gold|ground|truth|given|student|model|user"
    r"|candidate|question|confidence|certainty|minimum|maximum|min|max|scale|range|options?|choices?"
    r"|claims?|says?|said|writes?|wrote|quote[sd]?|answered|instead)\b"
)
"""Words of a label for something other than the verdict: "Expected answer: yes"."""

_UNSPACED_LABEL = re.compile(
    r"[\W_]*(?:最终|最後|最终的|最終|总体|綜合|综合|総合|我的|私の)?的?"
    r"(?:判断|判定|判決|结论|結論|结果|結果|评判|評判|评价|評価|评估|評估|裁决|评分|評分|得分|分数|分數|答案|答え|スコア|採点)"
    r"(?:结果|結果)?(?:是|为|為|は)?[\W_]*"
)
"""The labels of a verdict in Chinese and Japanese. Other labels there may be for anything."""

_DASH = re.compile(r"[-–—] +(?!\d)")

_LATEX = re.compile(r"\\(?:text|textbf|mathrm|mathbf)(?=\{)")
_LATEX_BOX = re.compile(r"\\boxed\s*\{+([^{}\n]{1,200})\}+")
_BOX = re.compile(r"\[\[([^\[\]\n]{1,200})\]\]")
_ENDED = re.compile(r"[.!?:;…。][\"'*_`)\]]*$|^\s*$")


def verdict(answer: str, choices: Choices) -> str | None:
    """The choice that an answer decides for; ``None`` if it decides for none, or for two.

    A final label counts alone. Otherwise labels, boxes, lines and sentences must agree.
    """
    if len(answer) > MAX_CHARS:
        return None
    text = _LATEX_BOX.sub(r"[[\1]]", _LATEX.sub("", choices.normalized(answer))).strip("` \n")
    labels = [*islice(_LABEL.finditer(text), MOST_LABELS + 1)]
    if len(labels) > MOST_LABELS:
        return None
    finals = [label for label in labels if label["final"]]
    said = {_value(label["value"], choices) for label in finals or labels} - {None}
    if not finals and (said or not labels):
        said |= _unlabelled(text, choices)
        if said:
            said |= {choices.alone(line) for line in text.split("\n")} - {None}  # no part of a list
    return said.pop() if len(said) == 1 else None


def _unlabelled(text: str, choices: Choices) -> set[str | None]:
    """The choices that boxes, lines and sentences state."""
    lines = text.split("\n")
    marked = {choices.alone(each) for each in (text, *_BOX.findall(text))} | {*_outer(lines, choices)}
    return {*marked, opening(text, choices), closing(text, choices), _own_label(lines, choices)} - {None}


def _value(value: str, choices: Choices) -> str | None:
    value = value[dash.end() :] if (dash := _DASH.match(value)) else value
    return choices.alone(value) or opening(value, choices, labelled=True)


def _outer(lines: list[str], choices: Choices) -> Iterator[str | None]:
    """The first and the last line, if they are choices alone and no part of a sentence."""
    first, rest = choices.alone(lines[0]), "\n".join(lines[1:])
    doubtful = TAKEN_BACK.search(rest) or UNSPACED.search(rest)
    retracted = doubtful and choices.named(rest) - {first}
    if not retracted and (_ENDED.search(lines[0]) or not lines[1:2] or not lines[1].strip()):
        yield first
    unfinished = DOUBT.search(lines[-2]) or UNSPACED.search(lines[-2]) if rest else None
    if rest and (_ENDED.search(lines[-2]) or not unfinished):
        yield choices.alone(lines[-1])


def _own_label(lines: list[str], choices: Choices) -> str | None:
    """The choice after the last line's colon, if no other line differs: "The answers agree: yes"."""
    ends = [line.rpartition(":") for line in lines if ":" in line]
    values = {choices.alone(value) for _, _, value in ends} - {None}
    label, colon, value = lines[-1].rpartition(":")
    clause = re.split(r"[,;.!?]", label)[-1]
    foreign = DOUBT.search(clause) or _OF_ANOTHER.search(clause) or _is_unknown(label)
    return values.pop() if colon and values == {choices.alone(value)} and not foreign else None


def _is_unknown(label: str) -> bool:
    """Whether a label in a script without spaces may be for something other than the verdict."""
    return UNSPACED.search(label) is not None and not _UNSPACED_LABEL.fullmatch(label)


_CLAUSE, _FENCE = re.compile(r"[.!?]\s|[。\n]"), re.compile(r"\s*```\w*\s*\Z")
_OF_MINE = re.compile(
    r"\b(?:my(?: \w+)?|evaluation|assessment|judge?ment|verdict|rating|grading)\b(?: (?:of|for|on)\b.*)?"
)
_QUOTED = re.compile(
    r"\b(?:outputs?|responses?|submission|reply|replied|text|examples?|form|schema|like|such as|should|would"
    r"|could|if|not|return(?:s|ed)?|produced|generated|gave|provided)\b"
)
"""Words before an object that may be a quotation: "The output was:"."""

_ASK = r"(?:let me know|(?:please )?feel free|just ask)\b[^.!?,;:\n]*"
_POLITE = re.compile(
    rf"i hope (?:this|that|it) (?:helps|is (?:helpful|useful))|{_ASK}"
    rf"|if you (?:need|have|want|would|'d)\b[^.!?,;:\n]*(?:, *{_ASK})?(?=[.!\n]|\Z)"
)
"""Polite endings of models; their "if" is no doubt."""


def vouches(before: str, after: str, made: str, choices: Choices) -> bool:
    """Whether the prose around a judge's JSON does not contradict its choice. The words right before it must
    not mark it as a quotation. The text after it must not doubt it or name another choice, and no verdict in
    the prose may differ.
    """
    before, after = choices.normalized(before), choices.normalized(after)
    intro = _OF_MINE.sub("", _CLAUSE.split(_FENCE.sub("", before).strip())[-1])
    leads = not intro.endswith((".", "!", "…"))
    if leads and (_OF_ANOTHER.search(intro) or _QUOTED.search(intro) or _is_unknown(intro)):
        return False
    if DOUBT.search(_POLITE.sub("", after)) or TAKEN_BACK.search(after) or UNSPACED.search(after):
        return False
    others = choices.named(after) | {verdict(before, choices), verdict(after, choices)}
    return not others - {made, None}

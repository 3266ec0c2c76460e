"""The signs, labels and words by which judges say a verdict, negate it, or take it back."""

from __future__ import annotations

import re

# Signs that may surround a choice. Others change its meaning: "!pass", "~3", ">3", "A+", "[ ] yes", "yes?".
SIGNS = re.compile(r"[\s\"'“”„’«»`*_#.,;:!…(){}\[\]|$\\·•✅✓✔☑👍-]*")
MISLEADING = re.compile(r"!\s*\w|\(\s*\)|\[\s*\]|\w-|-\w|\?")
BULLET = re.compile(r"\s*(?:[-–—•*>]\s+)+")
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”*_`)\]]*\s+|\n+")
ENDED = re.compile(r"[.!?:;…][\"'”*_`)\]]*$")
MARKUP = re.compile(r"</?(?:b|i|u|p|em|strong|span|div|mark)>|\\(?:text|textbf|mathrm|mathbf)(?=\{)")
BOXES = re.compile(r"\[\[([^\[\]\n]{1,200})\]\]|\\boxed\s*\{+([^{}\n]{1,200})\}+")
TAGS = re.compile(
    r"<(/?)((?:final_?|overall_?)?(?:verdict|rating|score|grade|answer|choice|decision|judge?ment))>"
)

_OPENING = r"(?:^|(?<=[.!?;\n*_#\"'`{(>|]))[ \t*_#\"'`{(>|-]{0,20}"
LABEL = re.compile(
    _OPENING + r"(?:(?:my|the|your|so|therefore|thus|hence)[ ,]{1,3})*(?P<final>(?:final|overall|total)[ _])*"
    r"(?P<name>verdict|rating|score|grade|judge?ment|decision|choice|conclusion|assessment|evaluation)"
    r"[\"'*_`)]*\s*(?:is\s*)?[:=][\"'*_`]*"
    r"|"
    + _OPENING
    + r"(?:(?:my|the|your) )?(?P<last>final[ _](?:answer|result))[\"'*_`)]*\s*(?:is\s*)?[:=][\"'*_`]*"
    r"|(?P<overall>^[ *_#]{0,20}overall)[\"'*_`)]*\s*[:=][\"'*_`]*",
    re.MULTILINE,
)
LOOSE_LABEL = re.compile(r"\b(?:verdict|rating|score|grade|judge?ment|decision)[\"'*_`)]*(?: is)?:[\"'*_`]*")
CLAUSE_CHARS = 200
"""Characters before such a label that tell whose it is."""

HEADING = re.compile(
    r"^[ *_#]{0,20}(?:(?:my|the|final|overall) )*(verdict|rating|score|grade|judge?ment|decision)"
    r"[ *_:]{0,20}\n\s*",
    re.MULTILINE,
)
OF_ANOTHER = re.compile(
    r"\b(?:expected|reference|correct answer|right answer|gold|ground|truth|given|student|model|user"
    r"|candidate|question|quote[sd]?|confidence|certainty|minimum|min|maximum|max|scale|range"
    r"|options?|choices?|claims?|says?|said|wrote|writes?|reads?|answered|instead)\b"
)
"""A label with such a word stands before something else than the verdict: "Expected answer: yes"."""

NOT = re.compile(
    r"\b(?:not|never|neither|nor|none|nothing|nobody|cannot|hardly|barely|scarcely|far from"
    r"|anything but|by no means|without|fails? to|false|untrue|wrong|wrongly)\b|n't\b"
)
NO = re.compile(r"\bno\b(?!\s+[^\W\d_])")
BUT = re.compile(
    r"\b(?:partly|partially|almost|nearly|mostly|half|but|however|although|though|yet|except"
    r"|unless|if|only|otherwise|nevertheless|still|would|could|might)\b"
)
RETRACTION = re.compile(
    r"\b(?:wait|actually|i mean|i meant|on second thoughts?|or rather|correction|sorry|scratch that"
    r"|hmm+|maybe|perhaps)\b"
)
POLAR = frozenset(("yes", "no", "ja", "nein", "oui", "non"))
"""Choices that answer a question. What follows them is no part of them: "Yes: it does not lie"."""

FOLLOWED = re.compile(
    r"[\"'”’*_`)\]}]*(?P<sign>$|[.!](?=\s|[\"'”*_`)]|$)|[,;]|\s*—|\s+[-–]\s|\s+\(|\s+(?:because|since)\b|\n|:)"
)

SAID = re.compile(r"\bi(?:'d| would| will|'ll)? (?:say|rate|give|grade|call|judge|assign|award)\b")
RATING = frozenset(
    (
        *("rate", "rated", "rating", "score", "scores", "scored", "grade", "graded", "give", "assign"),
        *("award", "deserves", "gets", "receives", "earns", "verdict", "judgement", "judgment", "decision"),
        *("say",),
    )
)
CONCLUDING = frozenset(
    ("so", "thus", "therefore", "hence", "overall", "conclusion", "finally", "however", "but")
)
_SAYING = frozenset(
    (
        *("the", "this", "that", "these", "it", "it's", "its", "that's", "a", "an", "as", "of", "in", "and"),
        *("is", "was", "i", "my", "think", "believe", "conclude", "find", "consider", "judge", "call"),
        *("answer", "answers", "output", "response", "reply", "result", "solution", "completion"),
        *("submission", "statement", "text", "model's", "student's", "assistant's", "submitted", "final"),
        *("choice", "clearly", "fully", "completely", "entirely", "indeed", "definitely", "certainly"),
        *("totally", "factually", "logically", "also", "yes"),
    )
)
PLAIN = RATING | CONCLUDING | _SAYING
"""Words of a sentence that only says the verdict: none of them negates or doubts it."""

SHORT_LABELS = frozenset(("verdict", "rating", "score", "grade", "decision"))
"""Labels whose line holds nothing but a verdict: where it is none, the answer has none."""

MOST_LABELS = 100
"""Labels of an answer beyond which it has no verdict: a bound for hostile judges."""

REASON = re.compile(r",?\s+(?:because|since)\b")
TAKEN_BACK = re.compile(r"(?:no|or|to|not)\b|\d")
ASKING = frozenset(("is", "was"))

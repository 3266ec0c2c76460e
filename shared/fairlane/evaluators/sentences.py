"""Recognises sentences that state only a choice: "The answer is correct.", "Yes, it adds up.". There are few
ways to state a verdict, and endless ways to negate one. So a grammar has the words before a choice, and any
other sentence decides nothing.
"""

import re
from dataclasses import dataclass

from fairlane.evaluators.mentions import SIGNS, UNSPACED, Choices, harmless, is_number

_SUBJECT = (
    r"(?:it|this|that|(?:(?:the|this|that|its)[ ])?(?:final[ ])?(?:(?:model|student|assistant)'s[ ])?"
    r"(?:answer|output|response|reply|result|solution|submission|statement|text))"
)
_STATEMENT = re.compile(
    rf"""
    (?:yes[ ])?
    (?P<so>(?:so|thus|therefore|hence|overall|in[ ]conclusion|finally|but|however)[ ])?
    (?:
        (?P<rating>  # "I would give this answer a", "it deserves a score of", "my final verdict is"
            i(?:'d|[ ]would)?[ ](?:rate|grade|score|give|say|call|judge)[ ](?:{_SUBJECT}[ ])?(?:as[ ])?
          | {_SUBJECT}[ ](?:deserves|gets|receives|earns|scores)[ ]
          | (?:my|the)[ ](?:final[ ]|overall[ ])?(?:verdict|rating|score|grade|judge?ment|decision)[ ]is[ ]
        ) (?:an?[ ])?(?:(?:rating|score|grade)[ ]of[ ])?
      |  # "I think that the answer is entirely"
        (?:i(?:'d|[ ]would)?[ ](?:say|think|believe|conclude|find)[ ](?:that[ ])?)?
        (?:{_SUBJECT}[ ](?:is|was)|(?:it|that)'s)[ ]
        (?:(?:clearly|fully|completely|entirely|definitely|indeed|factually|also)[ ])?(?:an?[ ])?
    )?
    """,
    re.VERBOSE,
)
"""The words before a choice, each followed by a space."""

_BREAK = re.compile(
    r"[\"'*_`)\]}]*(?:(?P<end>$|[.!](?=\W|$)|\s*\n)|[,;]?\s+(?:because|since)\b|(?P<pause>[,;]|\s*—|\s+[-–(]))"
)
"""The end of a claim: a sentence's end, a reason, or a pause after which the sentence goes on."""

TAKEN_BACK = re.compile(
    r"^(?:not|or|but|well|hardly)\b|^no\b(?! \w)|\b(?:wait|actually|i meant?|on second thoughts?|or rather"
    r"|correction|sorry|scratch that|hmm+|maybe|perhaps|however)\b"
)
DOUBT = re.compile(
    r"n't\b|\bno\b(?! +[^\W\d_])|\b(?:not|never|neither|nor|none|nothing|nobody|cannot|no means|hardly|barely"
    r"|scarcely|far from|without|fails?|false|untrue|wrong|wrongly|partly|partially|almost|nearly|mostly|half"
    r"|but|however|although|though|yet|except|unless|if|only|otherwise|still|would|could|might)\b"
)
"""Words that negate or limit the statement of a sentence."""

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'*_`)\]]*\s+|(?<![:\s])\s*\n\s*\n")
"""A blank line ends a sentence too, unless it stands after a colon: "The student says:"."""

_CONCLUSION = re.compile(r"[,;]\s*(?=(?:so|thus|therefore|hence)\b)")


@dataclass(frozen=True, slots=True)
class _Claim:
    """A choice after introductory words alone, and the text that follows it."""

    choice: str
    said: re.Match[str]
    follows: re.Match[str]
    rest: str

    @property
    def answers(self) -> bool:
        """Whether the choice answers a question, so that a negation may follow it: "No, it is not"."""
        return self.choice.casefold() in ("yes", "no")

    def judges(self, *, whole: bool) -> bool:
        """Whether a sentence judges an answer. "The answer is 4" may answer the question itself.

        So may "The answer is A", but not as the ``whole`` text of a judge.
        """
        if self.said["rating"] or is_number(self.choice):
            return bool(self.said["rating"])
        return whole or self.said["so"] is not None or not (self.answers or len(self.choice) == 1)


def opening(text: str, choices: Choices, *, labelled: bool = False) -> str | None:
    """The choice in a text's first word or sentence, unless the rest retracts it. After a label, reasons may
    name other choices, as in "Rating: 4. It makes 2 mistakes.". Text in a script without spaces may retract
    anything, so no first word before it counts.
    """
    claim = _claim(text, choices)
    if claim is None or TAKEN_BACK.search(claim.rest) or UNSPACED.search(claim.rest):
        return None
    end, pause, number = claim.follows["end"], claim.follows["pause"], is_number(claim.choice)
    if claim.said.group():
        if pause or not claim.judges(whole=not claim.rest) or (end and DOUBT.search(claim.rest)):
            return None  # "The answer is correct, says the student", "It is correct. The reason is not."
    elif pause and not (number or claim.answers) and DOUBT.search(_SENTENCE_END.split(claim.rest)[0]):
        return None  # "Correct, but not entirely"
    if labelled and not pause:
        return claim.choice
    listed = number and end == "." and claim.rest  # "1. The sum is right."
    return None if listed or choices.named(claim.rest) - {claim.choice} else claim.choice


def closing(text: str, choices: Choices) -> str | None:
    """The choice that the last sentence or its last clause states: "2 + 2 is 4, so it is incorrect.".

    A sentence that does not conclude decides nothing if another choice is named before it.
    """
    *earlier, last = [each for each in _SENTENCE_END.split(text) if _WORD.search(each)] or [""]
    *clauses, last = _CONCLUSION.split(last)
    before, claim = " ".join([*earlier, *clauses]), _claim(last, choices)
    if not before or claim is None or not claim.said.group() or not claim.judges(whole=False):
        return None
    if claim.follows["pause"] or (claim.follows["end"] and claim.rest) or TAKEN_BACK.search(claim.rest):
        return None
    named = choices.named(claim.rest if claim.said["so"] else f"{before} {claim.rest}")
    return None if named - {claim.choice} else claim.choice


def _claim(text: str, choices: Choices) -> _Claim | None:
    first = choices.first(text)
    if first is None:
        return None
    choice, start, end = first
    said = _STATEMENT.fullmatch("".join(f"{word} " for word in _WORD.findall(text[:start])))
    follows = _BREAK.match(text, end)
    if said is None or follows is None or not harmless(_WORD.sub("", text[:start])):
        return None
    return _Claim(choice, said, follows, SIGNS.sub("", text[follows.end() :], count=1))

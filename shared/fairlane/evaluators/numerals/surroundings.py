"""The text next to a number: units and punctuation keep its value, anything else changes it."""

import re

from fairlane.evaluators.numerals.notation import DASH

_CJK = "\u0e00-\u0e7f\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
LETTER = rf"[^\W\d_{_CJK}]"
"""A letter of a script that puts spaces between words: "共18元" holds a number, "GPT4" is a name."""

_IN_WORD = rf"[^\W{_CJK}]"

_FUNCTIONS = r"sqrt|cbrt|log|ln|lg|exp|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|[dt]?binom"
_ARGUMENT = r"(?:\{(?>(?:[^{}]|\{(?>(?:[^{}]|\{[^{}]*+\})*)\})*)\}|\([^()\n]{0,80}\)|\[[^\[\]\n]{0,20}\])"
FUNCTION = (
    rf"(?:\\(?:{_FUNCTIONS})(?![A-Za-z])(?>(?:[_^](?:\w|{_ARGUMENT}))*)\s?(?:(?>{_ARGUMENT}+)|-?[\w.]++)?"
    rf"|\\[dtc]?frac(?![A-Za-z])(?>(?:\s?{_ARGUMENT})*)"
    rf"|(?<!\w)(?:{_FUNCTIONS})\([^()\n]{{0,80}}\)|√\s?(?:{_ARGUMENT}|-?[\w.]++)?)"
)
"""A function of something, such as ``\\sqrt{2}``: a number that is not computed."""

WORD = (
    rf"\\[A-Za-z]++|[A-Z]{{2,8}}-[0-9]\w*+|{LETTER}(?>(?:(?!_\{{){_IN_WORD})*)(?>(?:_\{{[^{{}}]*\}}|(?<=[0-9])\.[0-9]++)*)"
    r"(?P<raised>\^(?:\{[^{}]*\}|[-+]?\w++))?"
)
"""A word or a name with its digits: ``GPT4``, ``GPT-4``, ``x_{1}``, ``x^2``."""

_UNITS = (
    r"(?:[munpkcd]?m|[mk]?g|[mkM]?[NJVWA]|m?s|h|hr|min|K|mol|Pa|in|inch(?:es)?|ft|foot|feet|yd|yards?|mi|miles?|u"
    r"|units?|sq|(?:centi|milli|kilo|deci)?met(?:er|re)s?|seconds?)"
)
_UNIT = re.compile(rf"{_UNITS}\^(?:\{{\s?-?[1-4]\s?\}}|-?[1-4])(?!\w)")

_MULTIPLIERS = (
    r"hundreds?|dozens?|thousands?|million(?:en|e|s)?|[mb]illones|mill(?:ón|iard(?:en|e|s)?)|billion(?:en|s)?"
    r"|trillions?|quadrillions?|tausend|mille|mil|lakhs?|crores?|mio|mrd|mln|mn|bn"
)
MULTIPLIED = re.compile(
    rf"(?:\s{{0,3}}|-)(?i:(?:{_MULTIPLIERS})(?!\w))|[kKMBT](?![\w'])|[ ][kM](?![\w'])"
    r"|\s?[万萬亿億兆千百十만억조천백십]"
)
"""Words and letters that multiply the number before them."""

_JOINED = re.compile(
    rf"[.,:/_'][0-9]|\^|\*\*[0-9(]|-[0-9]++-[0-9]|/(?:[xyznijeπ](?!{LETTER})|\s?[(√\\])"
    rf"|\s{{0,2}}(?:{FUNCTION}|π(?!\w))"
    rf"|[ ]and[ ](?:a[ ]|one[ ]|three[ ])?(?:half|third|quarter|quarters)(?!\w)"
    rf"|[xyznijeXY](?!{LETTER}|')"
    rf"|(?!{_UNITS}\^){LETTER}++[0-9_^]"
    rf"|[‰\u2460-\u24ff\u2776-\u2793]|°[0-9]"
)
"""Continuations of a number that are not read."""

_FACTORIAL = re.compile(
    r"!(?!\s*$|\s*\n|\s+[A-Z]|\s*[\u2600-\u27bf\U0001f000-\U0001faff]|[\"')\]}!]|\*+(?![\w(]))"
)
_SHOUTED = re.compile(r"[^\W\d_]{2}")

_BEFORE = re.compile(r"(?:±\s?|\^\s?\{?\s?|[\w)}\]]\s?/\s?)\Z")
_NEGATED = re.compile(
    r"(?:(?:\A|[=({\[<>≈:,;|*×/+&])[ ]{0,3}"
    r"|(?<!\w)(?:is|are|was|be|equals|equal to|to|of|by|or|and|gives|gets?)\s{1,3})"
    r"(?:-[ ]{1,2}|minus\s{1,2})[({]?\Z|(?<!\w)negative\s{1,2}\Z",
    re.IGNORECASE,
)
_LOOKED_BACK = 48

REST = re.compile(
    rf"(?>(?:\s{{0,3}}(?i:(?:{_MULTIPLIERS})(?!\w))|\s{{0,2}}{FUNCTION}|\s?π|[\w°!√∞‰]++|\^|\{{[^{{}}]*+\}}"
    rf"|[.,:'/_*+{DASH}-]++(?=[\w\\({{])|(?<=[\^*])\([^()\n]{{0,80}}\))*)"
)
"""The rest of a number that cannot be read, so that no part of it is read as another number."""


def is_power(word: str, raised: str) -> bool:
    """Whether a word with the exponent ``raised`` is a number that is not computed; ``cm^2`` is a unit."""
    return any(sign.isdigit() for sign in raised) and _UNIT.fullmatch(word) is None


def joined(text: str, end: int) -> bool:
    """Whether the number that ends at ``end`` goes on in a way that the grammar does not know."""
    if _JOINED.match(text, end) is not None:
        return True
    return text.startswith("!", end) and _is_factorial(text, end)


def _is_factorial(text: str, end: int) -> bool:
    """Whether ``5!`` is a factorial. In "It is 5!" it ends a sentence."""
    return _FACTORIAL.match(text, end) is not None or _SHOUTED.search(text[max(0, end - 200) : end]) is None


def depends(text: str, start: int) -> bool:
    """Whether the text before ``start`` makes the number there a part of a larger expression."""
    before = text[start - 1 : start]
    return (
        before in ("/", "^", "±", "{", " ") and _BEFORE.search(text[max(0, start - 12) : start]) is not None
    )


def negated(text: str, start: int) -> bool:
    """Whether a minus before ``start``, apart from the digits or in words, is a sign and no subtraction."""
    before = text[max(0, start - _LOOKED_BACK) : start]
    if before[-1:] not in (" ", "(", "{"):
        return False
    if start > _LOOKED_BACK:
        before = f" {before}"
    return _NEGATED.search(before) is not None

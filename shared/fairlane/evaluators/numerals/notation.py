"""Unifies notations: digits, dashes, spaces, superscripts and LaTeX commands."""

import re
import unicodedata

RIGHT_QUOTE = "\N{RIGHT SINGLE QUOTATION MARK}"
DASH = "\N{EN DASH}"
"""Stands for all long dashes: one that touches a number is its minus, one between spaces is punctuation."""

_SPELT = {
    "\N{MINUS SIGN}": "-",
    "\N{HYPHEN}": "-",
    "\N{NON-BREAKING HYPHEN}": "-",
    "\N{SMALL HYPHEN-MINUS}": "-",
    "\N{FIGURE DASH}": "-",
    "\N{EM DASH}": DASH,
    "\N{HORIZONTAL BAR}": DASH,
    RIGHT_QUOTE: "'",
    "\N{FRACTION SLASH}": "/",
    "\N{DIVISION SLASH}": "/",
    "\N{ASTERISK OPERATOR}": "*",
    "\N{ARABIC DECIMAL SEPARATOR}": ".",
    "\N{ARABIC THOUSANDS SEPARATOR}": ",",
    "\N{MINUS-OR-PLUS SIGN}": "±",
}
_FULL_WIDTH = range(0xFF01, 0xFF5F)
_TO_ASCII = 0xFF01 - ord("!")

_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻"
_LOWERED = "₀₁₂₃₄₅₆₇₈₉"
_RAISED_RUN = re.compile(rf"[{_RAISED}]+")
_LOWERED_RUN = re.compile(rf"[{_LOWERED}]+")
_FROM_SCRIPT = str.maketrans(_RAISED + _LOWERED, "0123456789+-0123456789")
_VULGAR = re.compile("[¼-¾⅐-⅞↉]")

_MATHS = (
    (re.compile(r"\\(?:text|mathrm|math)\s?\{,\}|\{,\}"), ","),
    (re.compile(r"\\!"), ""),
    (re.compile(r"\\[,;: ]|(?<=[0-9])~(?=[0-9])"), " "),
    (re.compile(r"\\([$%#&_])"), r"\1"),
    (re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|phantom|limits)(?![A-Za-z])"), ""),
    (
        re.compile(
            r"\\(?:text|textbf|textit|textrm|texttt|mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mbox|hbox"
            r"|emph|operatorname|unit)\s?\{([^{}\\]*)\}"
        ),
        r" \1",
    ),
    (re.compile(r"\\(?:times|cdot|ast)(?![A-Za-z])"), "×"),
    (re.compile(r"\\(?:pm|mp)(?![A-Za-z])"), "±"),
    (re.compile(r"\^\s?(?:\{\s?\\circ\s?\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])"), "°"),
    (re.compile(r"\\(?:pi|Pi|infty)(?![A-Za-z])"), "π"),
)
_MARKUP = re.compile(r"<(su[pb])>([^<>]{0,20})</\1>")
_UNDERLINED = re.compile(r"(?<![A-Za-z0-9_])_{1,3}(?=[-+$€£¥0-9])|(?<=[0-9%])_{1,3}(?![\w{])")


class _Signs(dict[int, str]):
    """Maps a character to its unified form, with a cache."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        self[code] = written = _spelt(sign)
        return written


def _spelt(sign: str) -> str:
    if sign.isascii() or sign in _RAISED or sign in _LOWERED:
        return sign
    if sign in _SPELT:
        return _SPELT[sign]
    if ord(sign) in _FULL_WIDTH:
        return chr(ord(sign) - _TO_ASCII)
    digit = unicodedata.decimal(sign, None)
    if digit is not None:
        return str(digit)
    match unicodedata.category(sign):
        case "Zs":
            return " "
        case "Cf":
            return ""
    return sign


_SIGNS = _Signs()


def one_notation(text: str) -> str:
    """``text`` in ASCII digits, with ``-``, ``'``, ``×``, ``^{…}``, ``_{…}`` and ``1/2``; words stay."""
    if not text.isascii():
        text = text.translate(_SIGNS)
        text = _RAISED_RUN.sub(lambda run: f"^{{{run[0].translate(_FROM_SCRIPT)}}}", text)
        text = _LOWERED_RUN.sub(lambda run: f"_{{{run[0].translate(_FROM_SCRIPT)}}}", text)
        text = _VULGAR.sub(_fraction, text)
    if "\\" in text or "{,}" in text:
        for pattern, written in _MATHS:
            text = pattern.sub(written, text)
    if "<su" in text:
        text = _MARKUP.sub(lambda found: ("^{" if found[1] == "sup" else "_{") + found[2] + "}", text)
    return _UNDERLINED.sub("", text) if "_" in text else text


def _fraction(found: re.Match[str]) -> str:
    """A vulgar fraction; after a digit it is the fraction of a mixed number."""
    written = unicodedata.normalize("NFKC", found[0]).translate(_SIGNS)
    before = found.string[found.start() - 1 : found.start()]
    return f" {written}" if before.isdigit() else written

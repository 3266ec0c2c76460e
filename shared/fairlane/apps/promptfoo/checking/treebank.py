"""Splits a text into words as promptfoo's ROUGE does: js-rouge 3.2.3, after the Penn Treebank tokenizer."""

import re
import unicodedata

_SPACES = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_CONTRACTIONS = (
    *("(can)(not)", "(d)('ye)", "(gim)(me)", "(gon)(na)", "(got)(ta)", "(lem)(me)", "(more)('n)"),
    *("(wan)(na)(?= )", "('t)(is)", "('t)(was)"),
)
_QUOTES = re.compile("``|''|\"")
_RULES = tuple(
    (re.compile(pattern), spaced)
    for pattern, spaced in (
        (r"\.{3}", " ... "),
        (r"[:,](?!\d)", r" \g<0> "),
        (r"[;@#$%&]", r" \g<0> "),
        (r"([^.])(?a:(?<!\b[A-Za-z]\.[A-Za-z]))\.([\])}>' ]*)\Z", r"\1 .\2 "),
        (r"[?!\][(){}<>]", r" \g<0> "),
        ("--", " -- "),
        (r"\A|\Z", " "),
        ("([^'])' ", r"\1 ' "),
        ("'([sSmMdD]) ", r" '\1 "),
        ("('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r" \1 "),
        *(
            (rf"(?i)(?<![\w\u0300-\u036f\u200c\u200d]){each}(?![\w\u0300-\u036f\u200c\u200d])", r" \1 \2 ")
            for each in _CONTRACTIONS
        ),
    )
)


def words_of(text: str) -> list[str]:
    """The words and signs of one sentence, or of a text: then a full stop inside it stays at its word."""
    text = re.sub(f"[{_SPACES}]+", " ", text).strip(" ")
    inside = False

    def told_apart(found: re.Match[str]) -> str:
        nonlocal inside
        inside = found[0] == "``" or (not inside and _opens(text, found))
        return " `` " if inside else " '' "

    parsed = _QUOTES.sub(told_apart, text)
    for pattern, spaced in _RULES:
        parsed = pattern.sub(spaced, parsed)
    return parsed.split()


def _opens(text: str, quote: re.Match[str]) -> bool:
    """Whether a quotation mark outside a quotation opens one."""
    start, end = quote.span()
    before = text[start - 1] if start else " "
    of_before, of_after = (unicodedata.category(each) for each in (before, text[end : end + 1] or " "))
    bracketed = before in " <" or of_before == "Ps"
    led = before in " <" or of_before[0] == "P" or (start > 1 and text.startswith("``", start - 2))
    if not led or before in ".!?" or not (bracketed or end < len(text)):
        return False
    closing = _QUOTES.search(text, end)
    paired = of_after[0] in "LN" or of_after in ("Ps", "Sc")
    return quote[0] == '"' or bool(start and paired and closing and closing[0] == "''")

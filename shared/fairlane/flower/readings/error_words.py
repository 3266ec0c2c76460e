"""Errors as pages show them: short, and without the prompts and outputs that they may quote."""

import re
from collections.abc import Callable, Collection, Iterable
from functools import partial

MOST_CHARS = 300
"""Longest error on a page, in characters."""

_QUOTED = re.compile(r"""(?<!\w)(?:'[^'\n]*'|"[^"\n]*"|“[^”\n]*”|«[^»\n]*»|`[^`\n]*`)""")
_REPORTED = re.compile(r"\b(answered|returned|said|got|input_value)\b[\s=:]+.*", re.DOTALL)


def error_shown(error: str, *, show_text: bool, known: Collection[str] = ()) -> str:
    """An error of at most `MOST_CHARS`; without ``show_text`` it quotes nothing but ``known`` names."""
    if not show_text:
        unquoted = _QUOTED.sub(lambda quote: quote[0] if quote[0][1:-1] in known else "…", error)
        error = _REPORTED.sub(r"\1 …", unquoted)
    return error if len(error) <= MOST_CHARS else f"{error[:MOST_CHARS]}…"


def errors_of(lanes: Iterable[str], *, show_text: bool) -> Callable[[str], str]:
    """Formats errors for a page of these lanes, whose names may show: ``sim:small`` and ``small``."""
    names = frozenset(name for lane in lanes for name in (lane, lane.partition(":")[2]) if name)
    return partial(error_shown, show_text=show_text, known=names)

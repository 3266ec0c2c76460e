"""What may be shown of errors where prompts and outputs may not: they are quoted in some."""

from __future__ import annotations

import re

MOST_CHARS = 300

_QUOTED = re.compile(r"""(?<!\w)(?:'[^'\n]*'|"[^"\n]*"|“[^”\n]*”|«[^»\n]*»|`[^`\n]*`)""")
_TOLD = re.compile(r"\b(answered|returned|said|got|input_value)\b[\s=:]+.*", re.DOTALL)


def error_shown(error: str, *, show_text: bool) -> str:
    """An error without what it quotes of a call, unless texts may be shown; bounded."""
    if not show_text:
        error = _TOLD.sub(r"\1 …", _QUOTED.sub("…", error))
    return error if len(error) <= MOST_CHARS else f"{error[:MOST_CHARS]}…"

"""Takes out of a model's answer the reasoning that a server without a reasoning parser leaves in it."""

from __future__ import annotations

START, END = "<think>", "</think>"
"""Tags of Qwen, DeepSeek and others. Servers that put the start into the prompt send only the end."""

_QUOTES = ("`", '"', "'", "“", "”", "„", "\u2018", "\u2019", "«", "»")
_FENCE = "```"
_BLANKS = " \t\r\n\ufeff"


def without_reasoning(text: str) -> str:
    """A text without the reasoning that it begins with; the same text where it begins with none.

    Reasoning that does not end is all of a text, so nothing is left. A lone ``</think>`` ends reasoning whose
    start tag stood in the prompt, unless the text quotes the tag or is JSON.
    """
    rest = text.lstrip(_BLANKS)
    if rest.startswith(START):
        while rest.startswith(START):
            rest = rest.partition(END)[2].lstrip(_BLANKS)
        return rest
    before, end, after = text.partition(END)
    if not end or START in before or _is_mention(before, after):
        return text
    return after.lstrip(_BLANKS)


def _is_mention(before: str, after: str) -> bool:
    """Whether a tag between these texts is part of what is said: quoted, in a code block, or in JSON."""
    quoted = before.endswith(_QUOTES) or after.startswith(_QUOTES)
    is_json = before.lstrip(_BLANKS).startswith(("{", "["))
    # JSON text, or a sentence, whose quotation marks are open where the tag stands
    opened = before.lstrip(_BLANKS).startswith('"') and before.count('"') % 2 == 1
    return quoted or is_json or opened or before.count(_FENCE) % 2 == 1

"""Removes the reasoning that a server without a reasoning parser leaves in a model's answer."""

import re

START, END = "<think>", "</think>"
"""Tags of Qwen, DeepSeek and others. Where a chat template puts the start into the prompt, an answer has only
the end: https://docs.vllm.ai/en/latest/features/reasoning_outputs.html
"""

_QUOTES = ("`", '"', "'", "“", "”", "„", "\u2018", "\u2019", "«", "»")
_FENCE = "```"
_TAGS = re.compile(f"{START}|{END}")
_BLANKS = " \t\r\n\ufeff"


def without_reasoning(text: str) -> str:
    """A text without the reasoning that it begins with; the same text where it begins with none.

    Reasoning that does not end is all of a text, so nothing is left. A lone ``</think>`` ends reasoning whose
    start tag stood in the prompt, unless the text quotes the tag or is JSON.
    """
    rest = text.lstrip(_BLANKS)
    if rest.startswith(START):
        while rest.startswith(START):
            rest = rest[_end_of(rest) :].lstrip(_BLANKS)
        return rest
    before, end, after = text.partition(END)
    if not end or START in before or _is_mention(before, after):
        return text
    return after.lstrip(_BLANKS)


def _end_of(text: str) -> int:
    """Where the reasoning ends that a text begins with: after the tag that closes it, or the first end tag.

    Tags in quotes do not count.
    """
    depth, first = 0, 0
    for tag in _TAGS.finditer(text):
        if text[tag.start() - 1 : tag.start()] in _QUOTES and text[tag.end() : tag.end() + 1] in _QUOTES:
            continue
        depth += 1 if tag[0] == START else -1
        if tag[0] == END:
            first = first or tag.end()
            if depth == 0:
                return tag.end()
    return first or len(text)


def _is_mention(before: str, after: str) -> bool:
    """Whether a tag between these texts is part of what is said: quoted, in a code block, or in JSON.

    Quotation marks count right around the tag, or where the whole text opens with them.
    """
    start = before.lstrip(_BLANKS)
    quoted = before.endswith(_QUOTES) and after.startswith(_QUOTES)
    opened = start.startswith('"') and start.count('"') % 2 == 1
    return quoted or opened or start.startswith(("{", "[")) or before.count(_FENCE) % 2 == 1

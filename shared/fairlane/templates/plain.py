"""Templates that only insert names: they are filled in by joining texts, in time linear in their length."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from fairlane.templates.meter import MAX_CHARS, MissingVariableError, WorkLimitError

_MARKUP = re.compile(r"\{[{%#]")
_INSERTION = re.compile(r"\{\{[ \t\r\n]*([A-Za-z][A-Za-z0-9_]*)[ \t\r\n]*\}\}")
_NEWLINE = re.compile(r"\r\n|\r")

_TAKEN = frozenset(
    {
        *("and", "else", "if", "in", "is", "not", "or", "true", "false", "none", "True", "False", "None"),
        *("caller", "kwargs", "loop", "self", "super", "varargs"),
    }
)
"""Words that Jinja does not look up in the row."""

_MOST_NAMES: Final = 1_000

_NUMBER_CHARS: Final = 5_000
"""More than the digits of any number in a row (`fairlane.datasets.rows`)."""


class PlainTemplate:
    """Texts with a name between each two of them."""

    __slots__ = ("_texts", "_texts_chars", "names")

    def __init__(self, texts: tuple[str, ...], names: tuple[str, ...]) -> None:
        self._texts, self.names = texts, names
        self._texts_chars = sum(map(len, texts))

    def chars(self, names: Mapping[str, Any]) -> int | None:
        """At most so many characters result; ``None`` if a name is missing or its value is no scalar."""
        total = self._texts_chars
        for name in self.names:
            value = names.get(name)
            if isinstance(value, str):
                total += len(value)
            elif name in names and (value is None or isinstance(value, int | float)):
                total += _NUMBER_CHARS
            else:
                return None
        return total

    def fill(self, names: Mapping[str, Any]) -> str | None:
        """The rendered text; ``None`` if only Jinja can print one of the values.

        Raises `MissingVariableError`, and `WorkLimitError` for a text of more than `MAX_CHARS` characters.
        """
        pieces, length = [self._texts[0]], len(self._texts[0])
        for name, text in zip(self.names, self._texts[1:], strict=True):
            try:
                value = names[name]
            except KeyError:
                raise MissingVariableError(f"the row has no field {name!r}", name) from None
            if not isinstance(value, str):
                if value is not None and not isinstance(value, int | float):
                    return None
                value = str(value)
            length += len(value) + len(text)
            if length > MAX_CHARS:
                raise WorkLimitError(f"it renders to more than {MAX_CHARS:,} characters")
            pieces += (value, text)
        return "".join(pieces)


def plain_template(text: str) -> PlainTemplate | None:
    """``text`` if its only markup is ``{{ name }}`` as Jinja reads it, in few places; else ``None``."""
    texts, names, at = list[str](), list[str](), 0
    while (markup := _MARKUP.search(text, at)) is not None:
        inserted = _INSERTION.match(text, markup.start())
        if inserted is None or inserted[1] in _TAKEN or len(names) == _MOST_NAMES:
            return None
        texts.append(_NEWLINE.sub("\n", text[at : markup.start()]))
        names.append(inserted[1])
        at = inserted.end()
    texts.append(_NEWLINE.sub("\n", text[at:]))
    return PlainTemplate(tuple(texts), tuple(names))

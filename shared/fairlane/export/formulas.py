"""Keeps a spreadsheet from running a cell's text as a formula.

A spreadsheet evaluates a cell that begins with one of these signs, and a formula may fetch an address or, in
some, start a program: https://owasp.org/www-community/attacks/CSV_Injection
"""

from __future__ import annotations

import re

# What is a number is no formula, and stays one.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")

# Full-width forms count, too: some spreadsheets take them for the plain ones.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")

QUOTE = "'"


def quoted(text: str) -> str:
    """``text``, behind ``'`` if a spreadsheet would run it. One that is quoted already gets one more."""
    if not _FORMULA.match(text) or _NUMBER.fullmatch(text):
        return text
    return QUOTE + text


def unquoted(cell: str) -> str:
    """The inverse of `quoted`."""
    return cell[1:] if cell.startswith(QUOTE) and _FORMULA.match(cell) else cell

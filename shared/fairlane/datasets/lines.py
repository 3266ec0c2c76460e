"""The lines of a UTF-8 file, numbered and of bounded length."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO

MAX_ROW_CHARS = 16 * 1024 * 1024
"""Most of a file that is held for one row. A run's own limit is lower; this one bounds memory before it."""


class Broken(Exception):
    """A file does not hold the rows its name promises, from the row after the last one read."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and lines with their ends. Raises `Broken` for bad UTF-8 and endless lines."""
    number = 0
    while line := file.readline(MAX_ROW_CHARS + 1):
        number += 1
        if len(line) > MAX_ROW_CHARS:
            raise Broken(f"line {number} is longer than {MAX_ROW_CHARS:,} bytes", "Write one row a line.")
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
            if not line:
                continue
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(f"line {number}, byte {error.start + 1}") from None


def not_utf8(where: str) -> Broken:
    """The complaint about a file in another encoding."""
    return Broken(f"{where} is not UTF-8", "Save the file as UTF-8.")

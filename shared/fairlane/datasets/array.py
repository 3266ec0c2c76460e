"""Reads a JSON array of objects element by element, so that memory never holds a whole large file."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from fairlane.core.errors import BrokenPage
from fairlane.datasets.lines import MAX_ROW_CHARS, MalformedFile, not_utf8, unique_keys

_CHUNK = 64 * 1024
_REMEDY = "Write an array of objects: [{…}, {…}]."
_IN_AN_OBJECT = (
    "It begins with an object. If it has one on each line, name it .jsonl; if the rows are a list inside the "
    "object, save that list alone."
)
_SPACE = re.compile(r"[ \t\r\n]*")
_decode_at = json.JSONDecoder().raw_decode


def read_array(file: BinaryIO) -> Iterator[object]:
    """The array's elements. Raises `MalformedFile`."""
    text = _Text(file)
    if (start := text.peek()) != "[":
        raise MalformedFile("the file is no JSON array", _IN_AN_OBJECT if start == "{" else _REMEDY)
    text.skip()
    if text.peek() == "]":
        text.skip()
    else:
        while True:
            yield text.element()
            separator = text.peek()
            text.skip()
            if separator == "]":
                break
            if separator != ",":
                raise MalformedFile(f"line {text.line}: ',' or ']' is missing after an element", _REMEDY)
    if text.peek():
        raise MalformedFile(f"line {text.line}: something follows the array's end", _REMEDY)


class _Text:
    """The unread text of a file; holds one chunk, or as much as one element needs."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan = json.JSONDecoder(object_pairs_hook=unique_keys).raw_decode
        self._text, self._at, self._ended = "", 0, False
        self._lines_before = 1

    @property
    def line(self) -> int:
        """The current line of the file, from 1."""
        return self._lines_before + self._text.count("\n", 0, self._at)

    def peek(self) -> str:
        """The next character after white space; empty at the end of the file."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill(_CHUNK):
                return ""

    def skip(self) -> None:
        """Pass the character that `peek` showed."""
        self._at += 1

    def element(self) -> object:
        """Decode the next object; doubles the text in memory while the object does not end in it."""
        start = self.peek()
        if start != "{":
            problem = f"line {self.line}: an element is no object" if start else "the array is not closed"
            raise MalformedFile(problem, _REMEDY)
        while True:
            try:
                value, self._at = self._scan(self._text, self._at)
            except MalformedFile as error:
                raise MalformedFile(f"the element from line {self.line} on: {error}", error.remedy) from None
            except (ValueError, RecursionError) as error:
                problem = self._problem_of(error)
                held = len(self._text) - self._at
                if held > MAX_ROW_CHARS:
                    raise MalformedFile(f"{problem} (looked {held:,} characters ahead)", _REMEDY) from None
                if not self._fill(max(_CHUNK, held)):
                    raise MalformedFile(problem, _REMEDY) from None
            else:
                return value

    def _problem_of(self, error: Exception) -> str:
        if isinstance(error, json.JSONDecodeError):
            return f"line {self._lines_before + error.lineno - 1} is no JSON: {error.msg}"
        return f"line {self.line} is no JSON: {error}"

    def _fill(self, size: int) -> bool:
        """Drop what has been read and append about ``size`` bytes of text; false at the end of the file."""
        if self._ended:
            return False
        chunk = self._file.read(size)
        self._ended = not chunk
        try:
            more = self._decode.decode(chunk, final=self._ended)
        except UnicodeDecodeError:
            raise not_utf8(f"the text after line {self.line}") from None
        self._lines_before = self.line
        self._text = self._text[self._at :] + more
        self._at = 0
        return not self._ended


def elements_of(document: str) -> Iterator[Any]:
    """The elements of a JSON list as they are read.

    Raises `BrokenPage` for no list, and ``ValueError`` for no JSON.
    """
    at = _after_space(document, 0)
    if not document.startswith("[", at):
        raise BrokenPage("a page of rows is no list of objects")
    at = _after_space(document, at + 1)
    if document.startswith("]", at):
        at = _after_space(document, at + 1)
    else:
        while True:
            value, at = _decode_at(document, at)
            yield value
            at = _after_space(document, at)
            sign, at = document[at : at + 1], _after_space(document, at + 1)
            if sign == "]":
                break
            if sign != ",":
                raise ValueError(f"a comma or the list's end is missing at character {at}")
    if at < len(document):
        raise ValueError(f"more follows the list at character {at}")


def _after_space(document: str, at: int) -> int:
    found = _SPACE.match(document, at)
    return at if found is None else found.end()

"""Makes JSON lines from results as Redis holds them: it does not parse short successes, which most are."""

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, BinaryIO

from pydantic_core import to_json

from fairlane.core.lru import Lru
from fairlane.export.lines import Lines, json_of_each, lines_of, record_fields, record_line, write_all
from fairlane.model.evaluators import CallSpec
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.results import Portion, TaskResult, assemble, unpacked
from fairlane.model.run import RunSpec

LINES_AT_ONCE = 64
"""Lines made at a time."""

# JSON that Python and pydantic write alike. Other numbers and escapes differ between the two.
_TEXT = rb'"[^"\\\x00-\x1f]*+(?:\\["\\bfnrt][^"\\\x00-\x1f]*+)*+"'
_COUNT = rb"(?:0|[1-9][0-9]{0,14})"
_SCORE = rb"(?:0\.0|1\.0|null|0\.0{0,3}[1-9](?:[0-9]{0,9}[1-9])?)"

_TEMPLATES_KEPT = 1000
_VARYING = (
    "row",
    "output",
    "scores",
    "input_tokens",
    "output_tokens",
    "attempts",
    "latency_ms",
    "finish_reason",
)
_PLACES = {"item": b"%d"} | dict.fromkeys(_VARYING, b"%b")
"""The fields that differ between two records of short successes, in the order of a record's fields."""


class StoredRecords(Iterable[Record]):
    """All records of a run, in ``portions`` of some items; `write_lines` avoids making most of the
    records.
    """

    def __init__(self, portions: Iterable[Iterable[Record]]) -> None:
        self.portions = portions

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self.portions)

    def write_lines(self, out: BinaryIO) -> int:
        """Write JSON lines to ``out``; returns how many. Those before an error are written, too."""
        return write_all(self._lines(), out)

    def _lines(self) -> Iterator[Lines]:
        maker: _LineMaker | None = None
        for portion in self.portions:
            if not isinstance(portion, Portion) or portion.spec.evals:
                yield from lines_of(portion)
                continue
            if maker is None or maker.spec is not portion.spec:
                maker = _LineMaker(portion.spec)
            for first in range(0, len(portion.items), LINES_AT_ONCE):
                yield from maker.lines(portion.part(first, first + LINES_AT_ONCE))


class _LineMaker:
    """Makes the lines of one run: a template for each of a row's cells, with places for stored values."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec, self._cells = spec, spec.cells_per_row
        self._match = re.compile(_stored_success(spec), re.DOTALL).fullmatch
        self._templates = Lru[int, bytes](_TEMPLATES_KEPT)

    def lines(self, portion: Portion) -> Iterator[Lines]:
        """The lines of some items. It makes a record only for a result that does not fit the template."""
        found = [self._matched(stored) for stored in portion.stored]
        rows = json_of_each(portion.rows)
        if rows is None or found.count(None) > len(found) // 4:
            yield from lines_of(portion)
            return
        lines, template = list[bytes](), b""
        try:
            for place, (item, row, match) in enumerate(zip(portion.items, rows, found, strict=True)):
                if match is None:
                    lines += (record_line(each).encode() for each in portion.part(place, place + 1))
                    continue
                output, read, written, attempts, latency_ms, reason, scores = match.groups()
                if not template or self._cells > 1:
                    template = self._template(item)
                counts = (read, written, attempts, latency_ms)
                lines.append(template % (item, row, output, scores or b"{}", *counts, reason or b"null"))
        except (Exception, KeyboardInterrupt):
            yield Lines(len(lines), b"".join(lines))
            raise
        yield Lines(len(lines), b"".join(lines))

    def _template(self, item: int) -> bytes:
        """The template of an item's line, as a bytes format with `_PLACES`."""
        cell = item % self._cells
        found = self._templates.get(cell)
        if found is None:
            success = TaskResult(JobState.SUCCEEDED).to_json(short=True)
            found = _format_of(record_fields(assemble(self.spec, item, {}, [success]))) + b"\n"
            self._templates.put(cell, found)
        return found

    def _matched(self, stored: bytes | None) -> re.Match[bytes] | None:
        """The parts of a short success in valid UTF-8, packed or plain; ``None`` for any other result."""
        if stored is None:
            return None
        try:
            text: Any = unpacked(stored) if stored[:1] == b"z" else stored
            if not text.isascii():
                text.decode()
        except (UnicodeDecodeError, zlib.error):
            return None
        return self._match(text)


def _stored_success(spec: RunSpec) -> bytes:
    """A pattern of the list that `TaskResult.to_json` makes of a success, with scores and nothing else."""
    names = [each.name for each in spec.evaluators if not isinstance(each, CallSpec)]
    scores = b",".join(re.escape(to_json(name)) + b":" + _SCORE for name in names)
    text, count = b"(%b|null)" % _TEXT, b"(%b|null)" % _COUNT
    rest = rb'(?:,\{"sc":(\{%b\})\})?' % scores if len(set(names)) == len(names) else b"()"
    return rb"\[%b,%b,%b,(%b),%b(?:,%b%b)?\]" % (text, count, count, _COUNT, count, text, rest)


def _format_of(fields: Mapping[str, Any]) -> bytes:
    """The format of an object: a place for each field of `_PLACES`, else the value of ``fields``."""
    parts = (b"%b:%b" % (to_json(name), _format_of_value(name, value)) for name, value in fields.items())
    return b"{%b}" % b",".join(parts)


def _format_of_value(name: str, value: Any) -> bytes:
    if name in _PLACES:
        return _PLACES[name]
    if name == "usage":
        return _format_of(value)
    return to_json(value).replace(b"%", b"%%")

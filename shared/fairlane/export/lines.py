"""Records as JSON lines."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, TextIO

from pydantic_core import PydanticSerializationError, to_json

from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Unkept, Usage


class Lines(NamedTuple):
    """Some JSON lines, as UTF-8, each with its end."""

    number: int
    text: bytes


LINES_AT_ONCE = 50
"""Lines made at a time: so few that Python's garbage collector does not run."""

_MARK = "\uffff\uffff\uffff"
"""Separates the values of one array. No language uses this character, so the search for it is fast."""

_MARKED = f',"{_MARK}",'.encode()


def record_line(record: Record) -> str:
    """The record as one line of JSON, with its end. A lone surrogate, which no file can hold, is escaped."""
    fields = record_fields(record)
    try:
        line = to_json(fields, fallback=as_object).decode()
    except PydanticSerializationError:
        line = json.dumps(fields, separators=(",", ":"), default=as_object)
    return line + "\n"


def record_lines(records: Sequence[Record]) -> bytes:
    """The lines of several records, as UTF-8."""
    lines = json_of_each(list(map(record_fields, records)))
    if lines is None:
        return "".join(map(record_line, records)).encode()
    return b"\n".join([*lines, b""])


def json_of_each(values: Sequence[Any]) -> list[bytes] | None:
    """The JSON of each value, by one call for all; ``None`` where that does not work.

    It serialises one array with a mark between values, and splits it there.
    """
    marked: list[Any] = [_MARK] * (2 * len(values) - 1)
    marked[::2] = values
    try:
        found = to_json(marked, fallback=as_object)[1:-1].split(_MARKED)
    except PydanticSerializationError:
        return None
    return found if len(found) == len(values) else None  # a list in a row may hold the mark, too


def read_record(line: str | bytes) -> Record:
    """The record of a line that `record_line` made."""
    fields: dict[str, Any] = json.loads(line)
    fields["state"] = JobState(fields["state"])
    fields["usage"] = Usage(**fields["usage"])
    fields["eval_usage"] = {name: Usage(**each) for name, each in fields["eval_usage"].items()}
    fields["unkept"] = {
        name: Unkept(each["answers"], Usage(**each["usage"]))
        for name, each in fields.get("unkept", {}).items()
    }
    return Record(**fields)


def written(records: Iterable[Record], out: TextIO) -> Iterator[Record]:
    """Pass the records through, and write each to ``out``."""
    for record in records:
        out.write(record_line(record))
        yield record


def lines_of(records: Iterable[Record]) -> Iterator[Lines]:
    """The lines of records, some at a time. Those before an error come before it."""
    waiting = list[Record]()
    try:
        for record in records:
            waiting.append(record)
            if len(waiting) == LINES_AT_ONCE:
                some, waiting = waiting, []
                yield Lines(len(some), record_lines(some))
    except (Exception, KeyboardInterrupt):
        if waiting:
            yield Lines(len(waiting), record_lines(waiting))
        raise
    if waiting:
        yield Lines(len(waiting), record_lines(waiting))


def write_lines(records: Iterable[Record], out: BinaryIO) -> int:
    """Write records to ``out``, some at a time; returns how many. Those before an error are written, too."""
    return write_all(lines_of(records), out)


def write_all(lines: Iterable[Lines], out: BinaryIO) -> int:
    """Write lines to ``out``; returns how many."""
    count = 0
    for some in lines:
        out.write(some.text)
        count += some.number
    return count


def record_fields(record: Record) -> dict[str, Any]:
    """The fields of a record, in their order; a literal, since this is done for each of a million records."""
    used = record.usage
    return {
        "item": record.item,
        "row": record.row,
        "model": record.model,
        "prompt": record.prompt,
        "repetition": record.repetition,
        "state": str(record.state),
        "output": record.output,
        "scores": record.scores,
        "score_errors": record.score_errors,
        "usage": {
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "cached_tokens": used.cached_tokens,
            "written_tokens": used.written_tokens,
        },
        "attempts": record.attempts,
        "error": record.error,
        "latency_ms": record.latency_ms,
        "cached": record.cached,
        "eval_usage": record.eval_usage,
        "finish_reason": record.finish_reason,
        "arguments": record.arguments,
        "notes": record.notes,
        "unkept": record.unkept,
    }


def as_object(value: Any) -> dict[str, Any]:
    """A mapping or a data class as the object that JSON has for it."""
    return dict(value) if isinstance(value, Mapping) else dataclasses.asdict(value)

"""Records as JSON lines."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, TextIO

from pydantic_core import PydanticSerializationError, to_json

from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Unkept, Usage


def record_line(record: Record) -> str:
    """The record as one line of JSON, with its end. A lone surrogate, which no file can hold, is escaped."""
    fields = record_fields(record)
    try:
        line = to_json(fields, fallback=as_object).decode()
    except PydanticSerializationError:
        line = json.dumps(fields, separators=(",", ":"), default=as_object)
    return line + "\n"


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


def write_lines(records: Iterable[Record], out: BinaryIO) -> int:
    """Write records to ``out``; returns how many. Those before an error are written, too."""
    count = 0
    for record in records:
        out.write(record_line(record).encode())
        count += 1
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

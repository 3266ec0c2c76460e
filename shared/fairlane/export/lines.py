"""Records as JSON lines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from pydantic_core import PydanticSerializationError, to_json

from fairlane.model.job import JobState, Usage
from fairlane.model.results import Record


def record_line(record: Record) -> str:
    """The record as one line of JSON, with its end. A lone surrogate, which no file can hold, is escaped."""
    try:
        line = to_json(record, fallback=_as_object).decode()
    except PydanticSerializationError:
        fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
        line = json.dumps(fields, separators=(",", ":"), default=_as_object)
    return line + "\n"


def read_record(line: str | bytes) -> Record:
    """The record of a line that `record_line` made."""
    fields: dict[str, Any] = json.loads(line)
    fields["state"] = JobState(fields["state"])
    fields["usage"] = Usage(**fields["usage"])
    fields["eval_usage"] = {name: Usage(**each) for name, each in fields["eval_usage"].items()}
    return Record(**fields)


def written(records: Iterable[Record], out: TextIO) -> Iterator[Record]:
    """Pass the records through, and write each to ``out``."""
    for record in records:
        out.write(record_line(record))
        yield record


def _as_object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else dataclasses.asdict(value)

"""Records as rows of the archive, and back."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from fairlane.export.lines import as_object
from fairlane.model.record import Record
from fairlane.model.results import long_form
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.sessions import SessionRecord

_RECORD, _SESSION = TypeAdapter(Record), TypeAdapter(SessionRecord)


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished run without its records: its plan as JSON and the fields of its state."""

    spec: RunSpec
    plan: str
    counts: Mapping[str, str]

    @property
    def ref(self) -> RunRef:
        """The run's team and id."""
        return RunRef(self.spec.team, self.spec.run)

    @property
    def items(self) -> int:
        """Number of items, with those of rows that followed the submission."""
        return int(self.counts["items"])


class Entry(NamedTuple):
    """An item's record, and what Redis has of its evaluations in the order of their steps."""

    record: Record
    evaluations: Sequence[bytes | str | None]


class SessionEntry(NamedTuple):
    """A session's number and record in one of its cells, and what Redis has of its evaluations."""

    session: int
    cell: int
    record: SessionRecord
    evaluations: Sequence[bytes | str | None]


def plain_json(value: Any) -> str:
    """JSON that every database takes as text: no NUL, and no half of a surrogate pair, except escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=as_object)
    return text.encode("utf-8", "backslashreplace").decode()


def plain_text(text: str) -> str:
    """The text in a form that every database takes."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def record_text(record: Record | SessionRecord) -> str:
    """A record as JSON."""
    return plain_json({field.name: getattr(record, field.name) for field in dataclasses.fields(record)})


def record_of(text: str) -> Record:
    """The record that was written; fields that a newer version added are left out."""
    return _RECORD.validate_python(json.loads(text))


def session_record_of(text: str) -> SessionRecord:
    """As `record_of`, of a session."""
    return _SESSION.validate_python(json.loads(text))


def evaluations_text(stored: Sequence[bytes | str | None]) -> str:
    """Stored evaluation results as one JSON array, ``null`` for those that are missing."""
    return plain_json([None if each is None else long_form(each) for each in stored])

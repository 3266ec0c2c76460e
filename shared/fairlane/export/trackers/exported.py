"""The argument and the result of exporters; finds exporters by name, and spools their records."""

import json
import tempfile
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from importlib.metadata import entry_points
from typing import Any, Generic, Self, TypeAlias, TypeVar, cast

from fairlane.core.errors import UnknownFormat
from fairlane.export.lines import read_record, record_line
from fairlane.model.record import Record
from fairlane.model.run import RunSpec, cell_of

GROUP = "fairlane.exporters"
"""The entry points of exporters; another package can add one."""

Variant: TypeAlias = tuple[str, int]
"""The key by which tools compare records: the model as submitted, and the number of the prompt."""


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A finished run. ``messages`` returns those of a record's task, or ``None``."""

    spec: RunSpec
    messages: Callable[[Record], list[dict[str, Any]] | None] = lambda record: None

    def variant(self, record: Record) -> Variant:
        """The variant of a record."""
        models, cell = self.spec.models, cell_of(self.spec, record.item)
        return (models[cell.model] if models else record.model), record.prompt

    def titled(self, variant: Variant) -> str:
        """A variant's title: the model, and the prompt where there are several."""
        model, prompt = variant
        return f"{model}, prompt {prompt + 1}" if len(self.spec.prompts) > 1 else model or "given outputs"

    def row_number(self, record: Record) -> int:
        """The record's row, counted from 0."""
        return cell_of(self.spec, record.item).row

    def expected(self, record: Record) -> str | None:
        """The reference that the first evaluator with one compares the output to."""
        for evaluator in self.spec.evaluators:
            field = getattr(evaluator, "expected", None)
            if isinstance(field, str) and record.row.get(field) is not None:
                return as_text(record.row[field])
        return None


@dataclass(frozen=True, slots=True)
class Exported:
    """How many records were sent, and where they are now."""

    count: int
    where: str


Exporter: TypeAlias = Callable[[ExportedRun, Iterable[Record], str], Exported]
"""Sends the records of a run to a target, which the exporter interprets; empty: its default.

Raises `MissingExtra` before it reads a record.
"""


def exporter_names() -> list[str]:
    """The names of all exporters that are installed."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def find_exporter(name: str) -> Exporter:
    """The exporter of that name. Raises `UnknownFormat`."""
    found = sorted(
        entry_points(group=GROUP, name=name), key=lambda point: not point.module.startswith("fairlane.")
    )
    if not found:
        raise UnknownFormat(f"there is no exporter {name!r}: there are {', '.join(exporter_names())}")
    return cast(Exporter, found[0].load())


def as_text(value: Any) -> str:
    """A text as it is, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def plain(value: Any, bits: int | None = None) -> Any:
    """A row as dicts and lists, which other packages can serialize. ``bits``: signed integers that need more
    become texts.
    """
    if isinstance(value, Mapping):
        return {str(name): plain(part, bits) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, bits) for part in value]
    if bits is not None and isinstance(value, int) and not -(1 << bits - 1) <= value < 1 << bits - 1:
        return str(value)
    return value


Key = TypeVar("Key", bound=Hashable)


class RecordSpool(Generic[Key]):
    """Stores records on disk, by key, with eight bytes of memory for each. A context manager. ``key`` returns
    the key of a record, such as its model and prompt.
    """

    def __init__(self, key: Callable[[Record], Key]) -> None:
        self._key, self._file = key, tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._places: dict[Key, array[int]] = {}

    def take(self, records: Iterable[Record]) -> None:
        """Write records to disk."""
        for record in records:
            self._places.setdefault(self._key(record), array("Q")).append(self._file.tell())
            self._file.write(record_line(record).encode())

    @property
    def count(self) -> int:
        """The number of stored records."""
        return sum(map(len, self._places.values()))

    @property
    def keys(self) -> list[Key]:
        """The keys of the records, in the order of appearance."""
        return list(self._places)

    def of(self, key: Key) -> Iterator[Record]:
        """The records of one key, in the order of `take`."""
        return self._read(self._places[key])

    def all(self) -> Iterator[Record]:
        """All records, in the order of `take`."""
        return self._read(merge(*self._places.values()))

    def _read(self, places: Iterable[int]) -> Iterator[Record]:
        for place in places:
            self._file.seek(place)
            yield read_record(self._file.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

"""Rows of an Arrow batch, with its maps as objects: Arrow itself gives a map as a list of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_Reader = Callable[[Any], Any]


def rows_of_batch(batch: Any) -> Iterator[dict[str, Any]]:
    """The rows of a ``pyarrow.RecordBatch`` or table, as Python objects.

    A map with texts as keys is an object, wherever in a column it stands. One with a key twice stays pairs.
    """
    readers = {field.name: reader for field in batch.schema if (reader := _reader_of(field.type)) is not None}
    for row in batch.to_pylist():
        for name, reader in readers.items():
            row[name] = reader(row[name])
        yield row


def _reader_of(kind: Any) -> _Reader | None:
    """What makes objects of the maps in values of this type; ``None`` where it has none."""
    name = str(kind)
    if name.startswith("map<"):
        inner = _reader_of(kind.item_type)
        return lambda pairs: _object(pairs, inner, whole=str(kind.key_type) in ("string", "large_string"))
    if name.startswith("struct<"):
        fields = (kind.field(place) for place in range(kind.num_fields))
        readers = {field.name: found for field in fields if (found := _reader_of(field.type)) is not None}
        return (lambda value: _fields(value, readers)) if readers else None
    if name.startswith(("list<", "large_list<", "fixed_size_list<")):
        each = _reader_of(kind.value_type)
        return None if each is None else lambda values: None if values is None else [*map(each, values)]
    return None


def _object(pairs: Any, inner: _Reader | None, *, whole: bool) -> Any:
    if pairs is None:
        return None
    read = [(key, value if inner is None else inner(value)) for key, value in pairs]
    made = dict(read) if whole else {}
    return made if whole and len(made) == len(read) else read


def _fields(value: Any, readers: dict[str, _Reader]) -> Any:
    if value is None:
        return None
    return {name: readers[name](each) if name in readers else each for name, each in value.items()}

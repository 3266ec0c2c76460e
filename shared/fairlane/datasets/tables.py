"""Reads rows of pandas, polars and Arrow tables, without importing these libraries, and of Parquet files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, BinaryIO, Protocol

from fairlane.datasets.lines import MalformedFile

ROWS_AT_ONCE = 1000
"""Rows of a table that are Python objects at a time."""

_EXACT = 2**53
"""Floats below it hold each whole number."""

_OWN_NAMES = "Give every column a name of its own."
_PYARROW = "Install fairlane[parquet], which brings pyarrow."


class Table(Protocol):
    """A table with Arrow's stream interface: of pandas, polars, Arrow, or a relation of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The table as an Arrow stream."""
        ...


def table_rows(table: Any) -> Iterator[Mapping[Any, Any]] | None:
    """The rows of a table, a portion in memory at a time; ``None`` for an unknown kind of table.

    Raises `MalformedFile` for a table whose rows cannot be named.
    """
    home = type(table).__module__.partition(".")[0]
    if home == "pandas" and hasattr(table, "iloc"):
        return _of_pandas(table)
    if home == "polars":
        return _of_polars(table)
    if hasattr(table, "__arrow_c_stream__"):
        return _of_arrow(table)
    return None


def read_parquet(file: BinaryIO) -> Iterator[object]:
    """The rows of a Parquet file, a portion in memory at a time. Raises `MalformedFile`."""
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise MalformedFile("Parquet is read by pyarrow, which is not installed", _PYARROW) from None
    try:
        opened = parquet.ParquetFile(file)
        _check_names(opened.schema_arrow)
        for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE):
            yield from rows_of_batch(batch)
    except (ValueError, OSError, NotImplementedError) as error:  # ArrowInvalid is a ValueError
        raise MalformedFile(f"the file is no Parquet that can be read: {error}", "Write it again.") from None


def _of_pandas(frame: Any) -> Iterator[Mapping[Any, Any]]:
    if frame.ndim != 2:
        raise MalformedFile("a pandas Series has one column without a name", "Pass series.to_frame().")
    columns = list(frame.columns)
    for name in columns:
        if not isinstance(name, str):
            remedy = "Name the columns with texts: frame.columns = [str(name) for name in frame.columns]."
            raise MalformedFile(f"the column {name!r} is no text", remedy)
    if not frame.columns.is_unique:
        twice = next(name for name in columns if columns.count(name) > 1)
        raise MalformedFile(f"two columns are named {twice!r}", _OWN_NAMES)
    counts = [name for name in columns if _counts(frame[name])]
    portions = (frame.iloc[start : start + ROWS_AT_ONCE] for start in range(0, len(frame), ROWS_AT_ONCE))
    return (row for portion in portions for row in _without_gaps(portion, counts))


def _counts(column: Any) -> bool:
    """Whether a column of floats has gaps and otherwise whole numbers: pandas makes floats of 1, 2 and a gap.
    Its values become whole numbers again, so that ``{{ id }}`` prints 1.
    """
    if not str(column.dtype).startswith("float") or not column.hasnans:
        return False
    present = column.dropna()
    return bool(((present % 1 == 0) & (present.abs() < _EXACT)).all())


def _without_gaps(portion: Any, counts: Sequence[str]) -> Iterator[Mapping[Any, Any]]:
    """The rows of a part of a frame. A gap of a typed column is left out of its row. In a column of objects
    ``None`` is a value, and stays. ``counts``: the columns whose floats are whole numbers.
    """
    found = {name: _missing(portion[name]) for name in portion.columns}
    gaps = {name: missing for name, missing in found.items() if any(missing)}
    for at, row in enumerate(portion.to_dict("records")):
        for name, missing in gaps.items():
            if missing[at]:
                del row[name]
        for name in counts:
            if name in row:
                row[name] = int(row[name])
        yield row


def _missing(column: Any) -> list[bool]:
    missing: list[bool] = column.isna().tolist()
    if str(column.dtype) != "object":
        return missing
    return [gap and value is not None for gap, value in zip(missing, column, strict=True)]


def _of_polars(frame: Any) -> Iterator[Mapping[Any, Any]]:
    if not hasattr(frame, "iter_rows"):
        remedy = "Pass frame.collect()." if hasattr(frame, "collect") else "Pass series.to_frame()."
        raise MalformedFile(f"a polars {type(frame).__name__} has no rows", remedy)
    rows: Iterator[Mapping[Any, Any]] = frame.iter_rows(named=True)
    return rows


def _of_arrow(table: Any) -> Iterator[Mapping[Any, Any]]:
    """Rows of anything with Arrow's stream interface: a table, a reader of batches, a relation of DuckDB."""
    try:
        pyarrow: Any = import_module("pyarrow")
    except ModuleNotFoundError:
        raise MalformedFile("an Arrow table is read by pyarrow, which is not installed", _PYARROW) from None
    batches: Any = pyarrow.RecordBatchReader.from_stream(table)
    _check_names(batches.schema)
    return (row for batch in batches for part in _parts(batch) for row in rows_of_batch(part))


def _check_names(schema: Any) -> None:
    """Raises `MalformedFile` for columns, or fields of a column, with equal names: a row has one."""
    _check_fields(list(schema), "columns are")
    for column in schema:
        waiting = [column.type]
        while waiting:
            kind = waiting.pop()
            fields = [kind.field(place) for place in range(kind.num_fields)]
            if str(kind).startswith("struct"):
                _check_fields(fields, f"fields in the column {column.name!r} are")
            waiting += [field.type for field in fields]


def _check_fields(fields: Sequence[Any], what: str) -> None:
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedFile(f"two {what} named {twice!r}", _OWN_NAMES)


def _parts(batch: Any) -> Iterator[Any]:
    return (batch.slice(start, ROWS_AT_ONCE) for start in range(0, batch.num_rows, ROWS_AT_ONCE))


_Reader = Callable[[Any], Any]


def rows_of_batch(batch: Any) -> Iterator[dict[str, Any]]:
    """The rows of a ``pyarrow.RecordBatch`` or table, as Python objects.

    A map with text keys becomes an object, at any depth. A map with a repeated key stays a list of pairs.
    """
    readers = {field.name: reader for field in batch.schema if (reader := _reader_of(field.type)) is not None}
    for row in batch.to_pylist():
        for name, reader in readers.items():
            row[name] = reader(row[name])
        yield row


def _reader_of(kind: Any) -> _Reader | None:
    """Converts the maps in values of this type to objects; ``None`` if the type has none."""
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

"""Opens a dataset's file, and finds the reader of its format."""

from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from fairlane.core.errors import SubmissionError
from fairlane.core.paths import at_home
from fairlane.datasets.array import read_array
from fairlane.datasets.lines import read_lines, read_table, read_tabs
from fairlane.datasets.row_json import FIELD
from fairlane.datasets.tables import read_parquet

Reader: TypeAlias = Callable[[BinaryIO], Iterator[object]]

_DATASET_REMEDY = (
    "Give a path (.jsonl, .json, .csv, .tsv, .parquet), a DataFrame or table, or an iterable of rows."
)

_PACKED = {".gz": "gunzip", ".bz2": "bunzip2", ".xz": "unxz", ".zst": "unzstd", ".zip": "unzip"}
_SHEETS = frozenset((".xlsx", ".xlsm", ".xls", ".ods"))

READERS: Mapping[str, Reader] = {
    ".jsonl": read_lines,
    ".ndjson": read_lines,
    ".json": read_array,
    ".csv": read_table,
    ".tsv": read_tabs,
    ".parquet": read_parquet,
}


def open_file(path: Path) -> tuple[BinaryIO, Reader]:
    """The open file, and the reader of its format. Raises `SubmissionError` for anything else than a
    dataset.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        problem = (
            f"it ends in {path.suffix}, which is not read" if path.suffix else "it is no path of a dataset"
        )
        remedy = _PACKED.get(path.suffix.lower())
        first = f"Unpack it first: {remedy} {path}. " if remedy else ""
        if path.suffix.lower() in _SHEETS:
            first = "Save the sheet as .csv, or pass pandas.read_excel(path). "
        raise SubmissionError(FIELD, str(path), problem, f"{first}{_DATASET_REMEDY}")
    try:
        file = at_home(path).open("rb")
    except FileNotFoundError:
        remedy = f"Check the path; relative ones start at {Path.cwd()}."
        raise SubmissionError(FIELD, str(path), "there is no such file", remedy) from None
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SubmissionError(FIELD, str(path), f"cannot be read: {problem}", "Check the path.") from None
    return file, reader


def no_dataset(dataset: Mapping[Any, Any]) -> SubmissionError:
    """The error for a mapping in place of a dataset, with its remedy."""
    if type(dataset).__name__.endswith("DatasetDict"):  # of Hugging Face: splits by name
        name = next(iter(dataset), "train")
        return SubmissionError(FIELD, sorted(dataset), "has several splits", f"Name one: dataset[{name!r}].")
    lengths = {len(column) if _is_column(column) else -1 for column in dataset.values()}
    if len(lengths) == 1 and lengths.isdisjoint({-1}):
        problem = f"a dict of {len(dataset)} lists of {lengths.pop():,} values each are columns, not rows"
        remedy = "Give pandas.DataFrame(columns); of a dataset of Hugging Face, dataset.select(range(10))."
        return SubmissionError(FIELD, sorted(map(str, dataset)), problem, remedy)
    return SubmissionError(FIELD, dataset, "a dict is one row, not a dataset", "Put it into a list: [{…}].")


def _is_column(value: object) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping)


_READS = ("to_table", "iter_rows", "to_pandas", "toPandas", "compute")
"""Methods that return the rows: pyarrow's datasets', Ray's, Modin's, Spark's, Dask's."""


def remedy_of(dataset: object) -> str:
    """The remedy for an object that is not a dataset."""
    if isinstance(dataset, AsyncIterable):
        return "Write its rows into an open run: AsyncClient.open(…), then `await rows.extend(…)`."
    reads = next((each for each in _READS if hasattr(dataset, each)), None)
    return f"Pass its rows: dataset.{reads}()." if reads else _DATASET_REMEDY

"""The formats of exported records, by a file's suffix."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, get_args

from fairlane.core.errors import UnknownFormat
from fairlane.core.paths import at_home
from fairlane.export.files import as_text, place_of, whole_bytes
from fairlane.export.lines import write_lines
from fairlane.export.spool import Spool
from fairlane.export.tables import require_parquet, write_csv, write_parquet
from fairlane.model.record import Record

Format: TypeAlias = Literal["jsonl", "csv", "parquet"]

FORMATS: tuple[Format, ...] = get_args(Format)

_SUFFIXES: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}


def format_of(path: Path, wanted: str | None = None) -> Format:
    """The wanted format, or that of the path's suffix. Raises `UnknownFormat`."""
    for name in FORMATS:
        if wanted == name:
            return name
    if wanted is not None:
        raise UnknownFormat(f"there is no format {wanted!r}: there are {', '.join(FORMATS)}")
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise UnknownFormat(
            f"{path}: its name does not end in {', '.join(_SUFFIXES)}: say which of "
            f"{', '.join(FORMATS)} it is to be"
        )
    return found


def export_records(
    records: Iterable[Record],
    path: str | os.PathLike[str],
    wanted: str | None = None,
    *,
    raw: bool = False,
) -> int:
    """Write records to a file that appears complete or not at all; returns their number. It writes to a pipe
    or a device as records come.

    In a table, a text that a spreadsheet would run as a formula is quoted, unless ``raw``. Raises
    `UnknownFormat`, `MissingExtra` and ``OSError`` before it reads a record.
    """
    target = at_home(Path(path))
    chosen = format_of(target, wanted)
    if chosen == "parquet":
        require_parquet()
    with whole_bytes(target) as out:
        return write_records(records, out, chosen, place_of(target).folder, raw=raw)


def write_records(
    records: Iterable[Record],
    out: BinaryIO,
    chosen: Format,
    folder: Path | None = None,
    *,
    raw: bool = False,
) -> int:
    """Write records to an open file. All but JSON lines pass through a temporary file in ``folder``."""
    if chosen == "jsonl":
        return write_lines(records, out)
    with Spool(folder) as spool:
        spool.take(records)
        if chosen == "parquet":
            write_parquet(spool, out, raw=raw)
        else:
            with as_text(out) as text:
                write_csv(spool, text, raw=raw)
        return spool.count

"""Records as JSON lines, and files that are there whole or not at all."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from fairlane.run import Record


def record_line(record: Record) -> str:
    """The record as one line of JSON, with its end."""
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return json.dumps(fields, ensure_ascii=False, default=_as_object) + "\n"


def written(records: Iterable[Record], out: TextIO) -> Iterator[Record]:
    """The records as they are, each written to ``out`` as it passes."""
    for record in records:
        out.write(record_line(record))
        yield record


def _as_object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else dataclasses.asdict(value)


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A text file to write; it takes its name when the block ends well, and leaves nothing when it does not.

    Raises ``OSError`` that names ``path``, at once where nothing can be written there.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        out = partial.open("w", encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with out:
            yield out
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise

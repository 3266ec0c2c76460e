"""Records as JSON lines, and files that are there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from fairlane.run import Record


def record_line(record: Record) -> str:
    """The record as one line of JSON, with its end."""
    return json.dumps(asdict(record), ensure_ascii=False, default=dict) + "\n"


def written(records: Iterable[Record], out: TextIO) -> Iterator[Record]:
    """The records as they are, each written to ``out`` as it passes."""
    for record in records:
        out.write(record_line(record))
        yield record


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

"""Writes files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO


@contextmanager
def whole_bytes(path: Path) -> Iterator[BinaryIO]:
    """A file to write; it gets its name when the block succeeds, and is removed when the block raises.

    Raises ``OSError`` that names ``path``, at once if the place is not writable.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        out = partial.open("wb")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with out:
            yield out
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """The same for text in UTF-8, whose lines end as they are written."""
    with whole_bytes(path) as out, as_text(out) as text:
        yield text


@contextmanager
def as_text(out: BinaryIO) -> Iterator[TextIO]:
    """A binary file to write text to; it stays open."""
    text = TextIOWrapper(out, encoding="utf-8", newline="\n")
    try:
        yield text
    finally:
        text.detach()

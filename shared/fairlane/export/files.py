"""Writes files that appear complete or not at all; writes pipes and devices directly."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO
from uuid import uuid4

_DESCRIPTORS = re.compile(r"/dev/fd|/proc/(?P<process>\d+)(?:/task/\d+)?/fd")
_NOT_MY_TERMINAL = getattr(os, "O_NOCTTY", 0)  # Windows has no controlling terminals
_MOST_LINKS = 40
"""Links that a path may lead through, as Linux has it (path_resolution(7))."""

_NAME_KEPT = 25
"""Characters of a file's name in that of its partial file; each has up to four bytes."""

_WHILE_WRITING = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""Errors of a disk. They do not name the file; others may be of the network that the content comes from."""


@dataclass(frozen=True, slots=True)
class Place:
    """The target of a path: a regular file, which may not exist yet, or something to write directly."""

    target: Path
    """The file itself, where the path is a link to it."""

    before: os.stat_result | None
    """The existing file, if any."""

    descriptor: int | None = None
    """The open file of this process that the path stands for, as /dev/stdout and /dev/fd/3 do."""

    @property
    def direct(self) -> bool:
        """Whether it must not be replaced: it is a pipe, a device, a socket or an open file."""
        return self.descriptor is not None or (
            self.before is not None and not stat.S_ISREG(self.before.st_mode)
        )

    @property
    def folder(self) -> Path | None:
        """The folder for a temporary file; ``None`` for a direct target."""
        return None if self.direct else self.target.parent


def place_of(path: Path) -> Place:
    """Follow a path. Raises ``OSError`` that names it, also for a folder and for a socket."""
    with naming(path):
        number = _descriptor(path)
        try:
            before = path.stat()
        except FileNotFoundError:
            if number is not None:
                raise
            before = None
        if before is not None and stat.S_ISDIR(before.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if before is not None and stat.S_ISSOCK(before.st_mode) and number is None:
            raise OSError(errno.ENXIO, "it is a socket, which only a connection can write to")
        return Place(Path(os.path.realpath(path)), before, number)


@contextmanager
def whole_bytes(path: Path) -> Iterator[BinaryIO]:
    """A file to write; it gets its name when the block succeeds, and is removed when the block raises. A link
    stays; its target is replaced. The new file keeps the mode of the old one, and its owner if allowed. A
    pipe, a device or an open file (/dev/stdout) is written directly, so a part of the content may be there
    when the block raises. Raises ``OSError`` that names ``path``, at once if the place is not writable.
    """
    place = place_of(path)
    writing = _directly(path, place) if place.direct else _beside(path, place)
    with writing as out:
        yield out


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """`whole_bytes` for UTF-8 text, without translation of line ends."""
    with whole_bytes(path) as out, as_text(out) as text:
        yield text


@contextmanager
def as_text(out: BinaryIO) -> Iterator[TextIO]:
    """A binary file to write text to; it stays open. A lone surrogate, which UTF-8 has not, is written as
    JSON escapes it.
    """
    text = TextIOWrapper(out, encoding="utf-8", errors="backslashreplace", newline="\n")
    try:
        yield text
    finally:
        text.detach()


def check_place(path: Path) -> None:
    """Raises ``OSError`` that names ``path`` where nothing can be written there; leaves nothing.

    It opens no pipe, since its reader would see the end.
    """
    place = place_of(path)
    with naming(path):
        if not place.direct:
            partial = partial_file(place.target)
            partial.open("wb").close()
            partial.unlink()
        elif place.descriptor is None and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def remove_earlier(path: Path) -> None:
    """Remove the regular file that a path leads to, if there is one; a link, a pipe or a device stays."""
    place = place_of(path)
    if not place.direct:
        place.target.unlink(missing_ok=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name ``path`` in errors of the file system."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def _beside(path: Path, place: Place) -> Iterator[BinaryIO]:
    """Write a file beside the target, and move it there."""
    partial = partial_file(place.target)
    with naming(path):
        out = partial.open("wb")
    try:
        with naming_a_full_disk(path), out:
            if place.before is not None:
                _take_over(out.fileno(), place.before)
            yield out
        with naming(path):
            partial.replace(place.target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def _directly(path: Path, place: Place) -> Iterator[BinaryIO]:
    with naming(path):
        if place.descriptor is not None:
            number = os.dup(place.descriptor)  # keeps the shared position; a new open would start at 0
        else:
            number = os.open(path, os.O_WRONLY | _NOT_MY_TERMINAL)
        out = open(number, "wb")  # noqa: SIM115, PTH123 - closed below
    with naming_a_full_disk(path), out:
        yield out


@contextmanager
def naming_a_full_disk(path: Path) -> Iterator[None]:
    """Name ``path`` in errors of a disk that name no file."""
    try:
        yield
    except OSError as error:
        if error.errno in _WHILE_WRITING and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise


def _take_over(number: int, before: os.stat_result) -> None:
    """Give an open file the owner and the mode of the one that it replaces."""
    now = os.fstat(number)  # on Windows all owners are 0
    if now.st_uid != before.st_uid:
        with suppress(PermissionError):
            os.fchown(number, before.st_uid, -1)
    if now.st_gid != before.st_gid:
        with suppress(PermissionError):
            os.fchown(number, -1, before.st_gid)
    if hasattr(os, "fchmod"):  # Windows has it from Python 3.13 on
        os.fchmod(number, stat.S_IMODE(before.st_mode))


def partial_file(target: Path) -> Path:
    """A new name beside the target, at most 143 bytes long, which every file system takes."""
    return target.with_name(f".{target.name[:_NAME_KEPT]}.{uuid4().hex}.partial")


def _descriptor(path: Path) -> int | None:
    """The number of the open file that a path stands for, perhaps through links: 1 for /dev/stdout."""
    at = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow the link itself
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(at)
        found = _DESCRIPTORS.fullmatch(os.path.realpath(folder))
        if found is not None and name.isdecimal() and found["process"] in (None, str(os.getpid())):
            return int(name)
        try:
            at = os.path.join(folder, os.readlink(at))  # noqa: PTH115, PTH118 - a path as text
        except OSError:  # no link
            return None
    return None

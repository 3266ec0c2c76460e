"""Records which server wrote a data directory, so that the next start chooses one that can read it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

REDIS, VALKEY = "redis", "valkey"
LAST_COMMON = (7, 2)
"""The last version of Redis whose files Valkey, which forked from it, can read."""

_RECORD = "server.json"
_DATA = "appendonlydir"


class Writer(NamedTuple):
    """The server properties that its files depend on: ``redis`` or ``valkey``, and the version."""

    family: str
    version: str

    def __str__(self) -> str:
        return f"{self.family} {self.version}"

    def reads_files_of(self, other: Writer) -> bool:
        """Whether this server can read the files of ``other``: older ones of its family, or of Redis up to
        7.2.
        """
        if self.family == other.family:
            return self.release >= other.release
        return self.family == VALKEY and other.release <= LAST_COMMON

    @property
    def release(self) -> tuple[int, ...]:
        """Major and minor version: patches change no file's format."""
        return tuple(int(part) for part in self.version.split(".")[:2])


def writer_of(data_dir: Path) -> Writer | None:
    """The server that wrote the data in a directory; ``None`` without data, or if unknown."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (data_dir / _DATA).is_dir():
            record = json.loads((data_dir / _RECORD).read_text(encoding="utf-8"))
            writer = Writer(str(record["family"]), str(record["version"]))
            return writer if writer.release else None
    return None


def remember(data_dir: Path, writer: Writer) -> None:
    """Record that this server writes into the directory from now on."""
    draft = data_dir / f"{_RECORD}.part"
    draft.write_text(json.dumps(writer._asdict()) + "\n", encoding="utf-8")
    draft.replace(data_dir / _RECORD)

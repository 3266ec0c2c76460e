"""Locks a data directory for one server: two that append to one file would corrupt it."""

import fcntl
import os
from pathlib import Path

from fairlane.core.errors import LocalStackError
from fairlane.embedded.private import make_private
from fairlane.embedded.processes import wait_until

# After the kill of a parent, the reaper gives its server a few seconds to end.
PATIENCE_S = 5.0


class DirectoryLock:
    """An advisory lock on a directory, held by this process and by every child that inherits ``fileno``. So
    it is free only when the last of them has ended, in whatever way.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        self._fileno: int | None = None

    @property
    def fileno(self) -> int:
        """The open file that carries the lock. Raises `LocalStackError` while it is not held."""
        if self._fileno is None:
            raise LocalStackError("redis", f"{self._path} is not locked")
        return self._fileno

    def acquire(self) -> None:
        """Take the lock, within `PATIENCE_S`. Raises `LocalStackError` if another stack holds it."""
        if self._fileno is not None:
            return
        make_private(self._path.parent)
        fileno = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            taken = wait_until(lambda: _try_to_lock(fileno), PATIENCE_S)
        except BaseException:
            os.close(fileno)
            raise
        if not taken:
            os.close(fileno)
            raise LocalStackError(
                "redis",
                f"the data directory {self._path.parent} is in use by another local stack. "
                "Stop that one, or choose another --data-dir",
            )
        self._fileno = fileno

    def release(self) -> None:
        """Close this process's descriptor of the lock; does nothing if it is not held."""
        if self._fileno is not None:
            os.close(self._fileno)
            self._fileno = None


def _try_to_lock(fileno: int) -> bool:
    try:
        fcntl.flock(fileno, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""Files that users name: the paths that they mean, and whether this process may read them."""

import os
import stat
from pathlib import Path

FORBIDDEN = "may not be read by this user"
MISSING = "is not there"


def at_home(path: Path) -> Path:
    """The path with ``~`` or ``~user`` replaced by that home; unchanged where nobody has such a home.

    Opening the unchanged path reports it as missing.
    """
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def unreadable(file: Path) -> str | None:
    """What keeps this process from reading a file, after the file's name; ``None`` if nothing does.

    A folder that this user may not enter forbids the file, too: `Path.is_file` raises there.
    """
    try:
        mode = file.stat().st_mode
    except PermissionError:
        return FORBIDDEN
    except (OSError, ValueError):  # a name may be too long, or hold a null
        return MISSING
    if not stat.S_ISREG(mode):
        return "is a folder" if stat.S_ISDIR(mode) else "is no file"
    return None if os.access(file, os.R_OK) else FORBIDDEN

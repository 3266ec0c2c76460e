"""Says whether this process may read a file that the settings name."""

import os
import stat
from pathlib import Path

FORBIDDEN = "may not be read by this user"


def unreadable(file: Path) -> str | None:
    """What keeps this process from reading a file, after the file's name; ``None`` if nothing does.

    A folder that this user may not enter forbids the file, too: `Path.is_file` raises there.
    """
    try:
        mode = file.stat().st_mode
    except PermissionError:
        return FORBIDDEN
    except (OSError, ValueError):  # a name may be too long, or hold a null
        return "is not there"
    if not stat.S_ISREG(mode):
        return "is no file"
    return None if os.access(file, os.R_OK) else FORBIDDEN

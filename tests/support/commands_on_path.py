"""Puts Redis' own tools on a path for tests of documents that use them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fairlane.config.environment import process_environment
from tests.support.tools import lacking

CLI = "redis-cli"
ROLES = ("redis-server", "redis-check-rdb")
"""Programs that are the server under another name."""


def put_on_path(folder: Path, server: str) -> dict[str, str]:
    """The variable ``PATH`` with ``redis-cli``, and with this server under its names first."""
    if shutil.which(CLI) is None:
        lacking(f"the runbooks need {CLI}: `apt-get install redis-tools`")
    folder.mkdir()
    for name in ROLES:
        (folder / name).symlink_to(server)
    return {"PATH": os.pathsep.join([str(folder), process_environment()["PATH"]])}

"""The Redis server that tests use: the embedded one, unless ``TEST_SERVER`` names another program."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.embedded.servers import find_wheel_binary, read_version

VARIABLE = "TEST_SERVER"


def chosen_program() -> str | None:
    """The program's path; ``None`` if none is chosen and the embedded server is not installed."""
    wanted = os.environ.get(VARIABLE)  # noqa: TID251  (which server to test is no setting of Fairlane's)
    if not wanted:
        return find_wheel_binary()
    path = shutil.which(wanted)
    if path is None or read_version(path) is None:
        pytest.exit(f"{VARIABLE}={wanted} is no Redis or Valkey server that runs here", returncode=2)
    return path


@pytest.fixture(scope="session", autouse=True)
def _server_first_on_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Puts the chosen program first on PATH, for this process and all processes that it starts."""
    program = chosen_program()
    with pytest.MonkeyPatch.context() as patch:
        if program is not None:
            folder = tmp_path_factory.mktemp("server")
            (folder / "redis-server").symlink_to(Path(program).resolve())
            patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


def pytest_report_header() -> str:
    """Shows the server at the top of every test run."""
    program = chosen_program()
    return f"redis server: {program or 'first on PATH'} {read_version(program) if program else ''}".rstrip()

"""Exporters and ``fairlane.compat`` with the real packages, which live in an environment of their own.

What they require contradicts the development environment. ``make test-trackers`` makes the other one; each
program of this folder runs in it, and fails where something is not as it says.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.documents import ROOT

pytestmark = pytest.mark.trackers

PYTHON = ROOT / ".venv-trackers" / "bin" / "python"
CI = "CI" in os.environ  # noqa: TID251  whether an absent tool is an error


def run(program: str, folder: Path) -> None:
    if not PYTHON.exists() and not CI:
        pytest.skip("its packages are not installed: make test-trackers installs them into .venv-trackers")
    module = f"tests.edge.trackers.programs.{program}"
    ended = subprocess.run(
        [PYTHON, "-m", module, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]


@pytest.mark.parametrize("program", ["inspect_export", "mlflow_export", "compat_mlflow"])
def test_a_tool_has_what_it_was_sent(program: str, tmp_path: Path) -> None:
    run(program, tmp_path)


@pytest.mark.slow  # the server imports for half a minute of CPU time
@pytest.mark.timeout(800)
def test_phoenix_has_what_it_was_sent(tmp_path: Path) -> None:
    run("phoenix_export", tmp_path)

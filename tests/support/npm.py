"""Packages from npm for tests, each set in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL_S = 600


def install(folder: Path, *packages: str) -> Path:
    """The ``node_modules`` with these packages, which npm installs once. Skips the test without npm."""
    modules, done = folder / "node_modules", folder / ".installed"
    if done.exists():
        return modules
    npm = _npm()
    folder.mkdir(parents=True, exist_ok=True)
    ended = subprocess.run(
        [*npm, "install", "--prefix", folder, "--no-audit", "--no-fund", *packages],
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if ended.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"npm could not install {' '.join(packages)}: {ended.stderr.strip()[-300:]}")
    done.touch()
    return modules


def _npm() -> list[str]:
    """What runs npm. A wheel has no links, so the ``npm`` beside its Node.js runs by its own path only."""
    found = shutil.which("npm")
    if found is None:
        pytest.skip("this test needs npm")
    inside = Path(found).parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(Path(found).with_name("node")), str(inside)] if inside.is_file() else [found]

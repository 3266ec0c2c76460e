"""Interpreters of the Python versions that the package is declared for, where the machine has them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.documents import ROOT

_NAMED = "Programming Language :: Python :: 3."
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

VERSIONS = tuple(f"3.{said.removeprefix(_NAMED)}" for said in _PROJECT["classifiers"] if _NAMED in said)
"""As the classifiers name them."""


@cache
def find_python(version: str) -> str | None:
    """The path of an interpreter that runs: this one, one on the path, or one of pyenv's."""
    return next((path for path in _candidates(version) if _version_of(path) == version), None)


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    if found := shutil.which(f"python{version}"):
        yield found  # pyenv puts one there for each version, of which those run that it has switched on
    root = os.environ.get("PYENV_ROOT")  # noqa: TID251  (a tool's own variable)
    installed = (Path(root) if root else Path.home() / ".pyenv") / "versions"
    yield from (str(path) for path in sorted(installed.glob(f"{version}.*/bin/python{version}")))


def _version_of(path: str) -> str | None:
    asked = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else None

"""Lock files hold every dependency of pyproject.toml, at a version that it admits, with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = {"requirements-dev.lock": "dev", "deploy/docker/requirements.lock": "flower"}
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==([^ ;\\]+)", re.MULTILINE)


def requirements(extra: str) -> list[Requirement]:
    """Direct requirements with an extra, and with those that the extra names in turn."""
    found = [Requirement(text) for text in PROJECT["dependencies"]]
    pending, seen = [extra], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        for text in PROJECT["optional-dependencies"][name]:
            requirement = Requirement(text)
            if canonicalize_name(requirement.name) == PROJECT["name"]:
                pending += requirement.extras
            else:
                found.append(requirement)
    return found


@pytest.mark.parametrize("file", LOCKS)
def test_a_lock_file_admits_what_the_project_names(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    pinned = {canonicalize_name(name): version for name, version in PINNED.findall(text)}
    for requirement in requirements(LOCKS[file]):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not locked: make lock"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: make lock"


@pytest.mark.parametrize("file", LOCKS)
def test_every_pin_has_a_hash_and_no_index_is_named(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    for entry in re.split(r"\n(?=\S)", text):
        if PINNED.match(entry):
            assert "--hash=sha256:" in entry, entry.splitlines()[0]
    assert "://" not in text

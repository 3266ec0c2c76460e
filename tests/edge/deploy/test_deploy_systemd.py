"""deploy/systemd: units that systemd takes, whose commands, files and times agree with the code."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane.config.sections import WorkerSettings
from tests.support.commands import check_variables, unknown_options
from tests.support.tools import lacking

FOLDER = Path(__file__).parents[3] / "deploy" / "systemd"
UNITS = ["fairlane-scheduler.service", "fairlane-worker@.service", "fairlane-flower.service"]
INSTALLED = "/opt/fairlane/bin/fairlane"
CLOSING_S = 20
MOST_EXPOSED = 2.0
"""Of 10, by `systemd-analyze security`."""


def directives(unit: str) -> dict[str, list[str]]:
    """Every directive with all its values, in their order."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / unit).read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def only(unit: str, name: str) -> str:
    (value,) = directives(unit)[name]
    return value


def seconds(text: str) -> float:
    assert re.fullmatch(r"\d+", text)
    return float(text)


def analyze(*arguments: str) -> str:
    """What `systemd-analyze` says, on whichever stream."""
    if shutil.which("systemd-analyze") is None:
        lacking("systemd-analyze is needed to check deploy/systemd: on Debian, apt install systemd")
    done = subprocess.run(
        ["systemd-analyze", *arguments],  # noqa: S607
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for file in FOLDER.glob("fairlane*.*"):
        text = file.read_text(encoding="utf-8").replace(INSTALLED, sys.executable)
        (tmp_path / file.name).write_text(text, encoding="utf-8")
    units = [str(tmp_path / unit) for unit in [*UNITS, "fairlane-workers.target"]]
    assert analyze("verify", "--man=no", *units).strip() == ""


def test_systemd_would_find_a_directive_that_does_not_exist(tmp_path: Path) -> None:
    text = (FOLDER / UNITS[0]).read_text(encoding="utf-8").replace(INSTALLED, sys.executable)
    wrong = tmp_path / UNITS[0]
    wrong.write_text(text.replace("ProtectHome=", "ProtectHomes="), encoding="utf-8")
    assert "ProtectHomes" in analyze("verify", "--man=no", str(wrong))


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_may_do_little_beside_its_work(unit: str) -> None:
    shown = analyze("security", "--offline=true", "--no-pager", str(FOLDER / unit))
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", shown)
    assert level is not None, shown
    assert float(level[1]) <= MOST_EXPOSED


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_starts_a_command_of_ours_as_the_user_that_is_made(unit: str) -> None:
    program, *command = shlex.split(only(unit, "ExecStart"))
    assert program == INSTALLED
    assert unknown_options(command) == set()
    user = only(unit, "User")
    assert f"\nu {user} " in (FOLDER / "fairlane.sysusers").read_text(encoding="utf-8")
    check_variables(pair.partition("=")[0] for pair in only(unit, "Environment").split())


@pytest.mark.parametrize("unit", UNITS[:2])
def test_the_ready_file_is_gone_with_its_process(unit: str) -> None:
    command = shlex.split(only(unit, "ExecStart"))
    ready = Path(command[command.index("--ready-file") + 1])
    assert str(ready.parent) == f"/run/{only(unit, 'RuntimeDirectory')}"


def test_keys_of_providers_reach_the_workers_alone() -> None:
    keys = "/etc/fairlane/keys.env"
    handed = {unit: keys in directives(unit)["EnvironmentFile"] for unit in UNITS}
    assert handed == {unit: unit == "fairlane-worker@.service" for unit in UNITS}
    for unit in (UNITS[0], UNITS[2]):
        assert directives(unit)["InaccessiblePaths"] == [f"-{keys}"]


def test_a_worker_has_longer_to_stop_than_it_gives_its_calls() -> None:
    grace = WorkerSettings().shutdown_grace_seconds
    assert seconds(only("fairlane-worker@.service", "TimeoutStopSec")) >= grace + CLOSING_S


def test_what_dies_is_started_again_and_a_worker_that_was_asked_to_end_is_not() -> None:
    assert {unit: only(unit, "Restart") for unit in UNITS} == {
        "fairlane-scheduler.service": "always",
        "fairlane-worker@.service": "always",
        "fairlane-flower.service": "always",
    }
    assert only("fairlane-worker@.service", "RestartPreventExitStatus") == "0"


def test_workers_are_started_and_stopped_together() -> None:
    assert only("fairlane-worker@.service", "PartOf") == "fairlane-workers.target"
    assert only("fairlane-worker@.service", "WantedBy") == "fairlane-workers.target"

"""The client asks for nothing that only POSIX has: an application on Windows imports it, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import importlib, os, pkgutil, signal, sys

for module in ("pwd", "grp", "fcntl", "resource", "termios", "tty", "pty", "syslog"):
    sys.modules[module] = None
for home, names in {
    os: ("fork", "getuid", "geteuid", "getgid", "fchmod", "fchown", "chown", "killpg", "O_NOCTTY", "mkfifo"),
    signal: ("SIGHUP", "SIGKILL", "SIGWINCH", "SIGTSTP", "SIGUSR1", "SIGALRM", "pthread_sigmask"),
}.items():
    for name in names:
        if hasattr(home, name):
            delattr(home, name)
"""
IMPORTS = """
import fairlane

for name in fairlane.__all__:
    getattr(fairlane, name)
for room in ("client", "export", "datasets", "evaluators", "store", "cli.runs", "cli.operate.drain"):
    package = importlib.import_module(f"fairlane.{room}")
    for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}."):
        importlib.import_module(module.name)
"""
NAMES_THE_OPERATOR = """
from fairlane.store.write.audit import operator

os.environ["USERNAME"] = "ann"
for name in ("LOGNAME", "USER", "LNAME"):
    os.environ.pop(name, None)
print(operator().partition("@")[0])
del os.environ["USERNAME"]
print(operator().partition("@")[0])
"""
WRITES_TWICE = """
from pathlib import Path
from fairlane.export.files import whole_file

for text in ("one", "two"):
    with whole_file(Path("out.csv")) as out:
        out.write(text)
    print(Path("out.csv").read_text())
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [(IMPORTS, []), (NAMES_THE_OPERATOR, ["ann", "unknown"]), (WRITES_TWICE, ["one", "two"])],
    ids=["imports", "operator", "export"],
)
def test_the_client_needs_nothing_of_posix(tmp_path: Path, program: str, printed: list[str]) -> None:
    script = tmp_path / "program.py"
    script.write_text(WITHOUT + program)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.stdout.splitlines() == printed, done.stderr
    assert done.returncode == 0, done.stderr

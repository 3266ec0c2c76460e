"""Imports of our own processes are kept out of garbage collections; other programs are left alone."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from fairlane.core.startup import lasting_imports

PROCESSES = (
    "fairlane.cli.__main__",
    "fairlane.flower.__main__",
    "fairlane.sandbox.__main__",
    "fairlane_scheduler.__main__",
    "fairlane_workers.__main__",
)
LEAST_KEPT = 10_000


@pytest.fixture(autouse=True)
def _collecting_as_before() -> Iterator[None]:
    before = gc.isenabled()
    yield
    (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_afterwards_as_it_was_before(collects: bool) -> None:
    (gc.enable if collects else gc.disable)()
    inside = True
    with suppress(ImportError), lasting_imports():
        inside = gc.isenabled()
        raise ImportError
    assert not inside
    assert gc.isenabled() == collects


def test_what_is_there_at_the_end_is_kept() -> None:
    gc.unfreeze()
    with lasting_imports():
        made = [[] for _ in range(LEAST_KEPT)]
    assert gc.get_freeze_count() >= len(made)


def _kept_after(program: str) -> int:
    """How many objects no collection looks at, in a new interpreter after ``program``."""
    counted = f"{program}; import gc; assert gc.isenabled(); print(gc.get_freeze_count())"
    done = subprocess.run(
        [sys.executable, "-c", counted], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.parametrize("module", PROCESSES)
def test_a_process_of_ours_keeps_what_it_has_imported(module: str) -> None:
    assert _kept_after(f"import {module}") >= LEAST_KEPT


def test_a_program_that_imports_the_package_collects_as_it_likes() -> None:
    assert _kept_after("import fairlane; fairlane.Client") == 0


INTERRUPTED = """
import signal, sys
class AtTheMain:
    def find_spec(self, name, *_):
        if name == "fairlane.cli.main":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, AtTheMain())
import fairlane.cli.__main__
"""


def test_ctrl_c_during_the_imports_of_a_command_shows_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")

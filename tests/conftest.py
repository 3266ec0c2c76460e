"""What holds for every test: nothing from outside decides how it goes."""

from __future__ import annotations

import gc
import logging
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings as hypothesis_settings

from fairlane.config.environment import process_environment

pytest_plugins = ["tests.support.redis", "tests.support.server_choice"]

# How long one example takes depends on what else the machine does; pytest's timeout catches what hangs.
# Each run draws anew, so thirty examples a run are thousands in a week.
hypothesis_settings.register_profile("fairlane", deadline=None, max_examples=30)
hypothesis_settings.load_profile("fairlane")

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where nothing has configured logging, structlog draws tracebacks with all variables: 0.1 s of CPU time each.
for _processor in structlog.get_config()["processors"]:
    if isinstance(_processor, structlog.dev.ConsoleRenderer):
        _processor.exception_formatter = structlog.dev.plain_traceback


QUICK = ("unit", "lua")
"""Folders of the quick tier. Tests there that take seconds are marked ``slow`` and belong to the proof."""

SECONDS = {
    "unit": 0.03,
    "lua": 0.2,
    "contract": 0.3,
    "integration": 4.0,
    "simulation": 2.0,
    "chaos": 10.0,
    "edge/browser": 4.0,
    "edge/deploy": 0.3,
    "edge/documents": 0.2,
    "edge/packaging": 4.0,
    "edge/promptfoo": 0.2,
    "edge/sdk": 0.3,
}
SLOW_SECONDS = 3.0
"""About how long a test takes, by its folder and where it is slow: files that take longest begin first.

A test that takes much longer says so, as ``@pytest.mark.slow(seconds=30)``: all would wait for its file.
"""

SHARED = "deployment"
"""The fixture of a folder's shared deployment, which costs CPU time until no test of that folder is left."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--tier quick`` leaves out slow tests; ``--tier proof`` leaves out what the quick tier runs.

    ``--beside COMMIT``: test_versions.py plays that commit's scripts beside these.
    """
    parser.addoption("--tier", choices=("quick", "proof"), help="run one tier of the tests")
    parser.addoption("--beside", metavar="COMMIT", help="play the scripts of a commit beside these")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The proof does not import files of the quick tier that have no slow test."""
    folder = collection_path.parent
    quick = folder.parent == Path(__file__).parent and folder.name in QUICK
    if config.getoption("--tier") != "proof" or not quick or not collection_path.name.startswith("test_"):
        return None
    return True if "mark.slow" not in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_finish() -> None:
    """Modules and collected tests stay until the end: no collection of garbage looks at them again."""
    gc.collect()
    gc.freeze()


def _turn(folder: Path, together: set[Path]) -> str:
    """Folders with a shared deployment come first, one after the other."""
    return f"0 {folder}" if folder in together else "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that hold on any server, and keep those of the chosen tier.

    Folders with a shared deployment come first, and of other files the longest.
    """
    tier, root = config.getoption("--tier"), Path(__file__).parent
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    file_seconds: Counter[Path] = Counter()
    shared: defaultdict[Path, bool] = defaultdict(bool)
    for item in items:
        parts = item.path.relative_to(root).parts if item.path.is_relative_to(root) else ("",)
        folder = "/".join(parts[:2]) if parts[0] == "edge" else parts[0]
        if folder == "lua":
            item.add_marker(pytest.mark.servers)
        slow = item.get_closest_marker("slow")
        quick = folder in QUICK and slow is None
        wanted = tier is None or quick == (tier == "quick")
        (kept if wanted else left_out).append(item)
        if wanted:
            usual = SLOW_SECONDS if slow is not None else SECONDS.get(folder, 1.0)
            file_seconds[item.path] += usual if slow is None else slow.kwargs.get("seconds", usual)
            shared[item.path] |= SHARED in getattr(item, "fixturenames", ())
    together = {path.parent for path, shares in shared.items() if shares}
    order = {path: (_turn(path.parent, together), shared[path], -file_seconds[path]) for path in shared}
    items[:] = kept if tier is None else sorted(kept, key=lambda item: order[item.path])
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A test that configures logging, or runs an entry point that does, decides nothing for the next one."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configuration = structlog.get_config() if structlog.is_configured() else None
    yield
    logging.captureWarnings(False)
    if configuration is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**configuration)
    root.handlers[:], root.level = handlers, level


@pytest.fixture(scope="session", autouse=True)
def _no_configuration_from_outside() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in process_environment() if name.startswith("FAIRLANE_")]:
            patch.delenv(variable)
        yield

"""What an installation without extras has to do without: nothing but what the extras are for."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = (
    *("sqlalchemy", "pandas", "pyarrow", "fsspec", "matplotlib", "flower", "opentelemetry"),
    *("google.auth", "botocore", "litellm", "tiktoken", "rapidfuzz"),
)


@pytest.mark.parametrize(
    "module",
    ["fairlane.cli.main", "fairlane_scheduler.command", "fairlane_workers.app", "fairlane_workers.bridge"],
)
@pytest.mark.slow
def test_a_role_starts_without_any_extra(module: str) -> None:
    blocked = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r})); import {module}"
    ended = subprocess.run(
        [sys.executable, "-c", blocked], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")

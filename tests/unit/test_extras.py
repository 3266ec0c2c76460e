"""What an installation without extras has to do without: nothing but what the extras are for."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import SecretStr

from fairlane.apps.archive.opening import Archive
from fairlane.core.errors import ConfigurationError

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


def test_an_archive_without_its_library_names_the_remedy_on_a_machine_and_in_an_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.delitem(sys.modules, "fairlane.apps.archive.database", raising=False)
    with pytest.raises(ConfigurationError) as caught:
        Archive(SecretStr("sqlite:////x.db"), "main").require_writable()
    words = str(caught.value)
    assert "pip install 'fairlane[archive]'; for an image, name it in PACKAGES of its build." in words
    assert "SecretStr" not in words
    assert "x.db" not in words

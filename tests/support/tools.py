"""Handles tools that a test needs and that may not be installed."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

_NO = frozenset({"", "0", "false", "no"})


def on_ci() -> bool:
    """Whether this run is CI's, by the variable ``CI``."""
    return os.environ.get("CI", "").lower() not in _NO  # noqa: TID251  (pytest's own process, no setting of ours)


def lacking(reason: str) -> NoReturn:
    """Skip the test; the summary lists it with ``reason``. On CI, fail it: CI installs every tool."""
    if on_ci():
        pytest.fail(reason)
    pytest.skip(reason)

"""Reads once what hundreds of short tests would each read: certificates of authorities, and protocols."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points

import pytest

from fairlane_workers.providers import registry
from tests.support.authorities import one_authority

__all__ = ["one_authority"]


@pytest.fixture(scope="package", autouse=True)
def _protocols_read_once() -> Iterator[None]:
    """A provider finds the entry point of its protocol in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", cache(entry_points))
        yield

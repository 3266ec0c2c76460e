"""Reads once what hundreds of short tests would each read: certificates of authorities, and protocols."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import certifi
import pytest

from fairlane_workers.providers import registry

END = "-----END CERTIFICATE-----\n"


@pytest.fixture(scope="package", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Transports trust one authority, which signs nothing here: OpenSSL takes 20 ms of CPU to read all."""
    first, end, _ = certifi.contents().partition(END)
    file: Path = tmp_path_factory.mktemp("authorities") / "one.pem"
    file.write_text(first + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="package", autouse=True)
def _protocols_read_once() -> Iterator[None]:
    """A provider finds the entry point of its protocol in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", cache(entry_points))
        yield

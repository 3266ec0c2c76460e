"""Transports that trust one authority: OpenSSL takes 20 ms of CPU to read all, once for each transport."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

END = "-----END CERTIFICATE-----\n"


@pytest.fixture(scope="package", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The one that they trust signs nothing here. A folder's conftest imports it for all its tests."""
    first, end, _ = certifi.contents().partition(END)
    file: Path = tmp_path_factory.mktemp("authorities") / "one.pem"
    file.write_text(first + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield

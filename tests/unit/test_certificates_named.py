"""A bad SSL_CERT_FILE is named with its path wherever HTTPS is opened, and never ends in a traceback."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import httpx
import pytest

from fairlane.apps.promptfoo.reading import remote
from fairlane_workers.providers.auth.authorizer import CredentialError
from fairlane_workers.providers.auth.google import GoogleRequests, GoogleToken


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_of_remote_rows_names_the_variable_and_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(ValueError, match=f"SSL_CERT_FILE {file}: "):
        remote._client()


def test_a_google_token_names_the_variable_and_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth")
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")

    async def scenario() -> None:
        token = GoogleToken(object(), requests=partial(GoogleRequests, None, None))
        await token.sign("POST", httpx.URL("https://h/"), httpx.Headers(), b"")

    with pytest.raises(CredentialError, match=r"SSL_CERT_FILE /no/such/file.pem: cannot be read"):
        asyncio.run(scenario())

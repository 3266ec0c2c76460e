"""The HTTP client of google-auth: with the connection's proxy and certificates, without retries."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx

from fairlane_workers.transport.tls import tls_context

TIMEOUT_S = 10.0
_METADATA_HOSTS = ("metadata.google.internal", "metadata", "169.254.169.254")


class GoogleResponse(NamedTuple):
    """A response as google-auth reads it."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class GoogleRequests:
    """A callable with the interface of `google.auth.transport.Request`, for one thread.

    It reaches Google's metadata servers without the proxy. An overloaded or broken server counts as
    unreachable, so that only the caller retries, not google-auth.
    """

    def __init__(self, proxy: str | None = None, ca_file: Path | None = None) -> None:
        direct: dict[str, None] = dict.fromkeys(f"all://{host}" for host in _METADATA_HOSTS)
        self._client = httpx.Client(
            verify=tls_context(ca_file),
            timeout=TIMEOUT_S,
            trust_env=False,
            proxy=proxy,
            mounts=direct if proxy else None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> GoogleResponse:
        """Make one request. Raises google-auth's ``TransportError``."""
        unreachable: type[Exception] = import_module("google.auth.exceptions").TransportError
        host = httpx.URL(url).host
        try:
            response = self._client.request(
                method, url, content=body, headers=headers, timeout=timeout or TIMEOUT_S
            )
        except httpx.HTTPError as fault:
            raise unreachable(f"{host}: {type(fault).__name__}: {fault}".rstrip(": ")) from fault
        if response.status_code == 429 or response.status_code >= 500:
            raise unreachable(f"{host} answered with status {response.status_code}")
        return GoogleResponse(response.status_code, dict(response.headers), response.content)

"""Fetches Google's access tokens through google-auth and renews them before they expire."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.errors import ConfigurationError
from fairlane_workers.providers.auth.authorizer import Authorizer, CredentialError
from fairlane_workers.transport import TransportError, UnusableSettingError
from fairlane_workers.transport.tls import tls_context

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
RENEW_MS = 225_000
"""How long before its expiry a token is renewed: google-auth's own figure. Calls use the old one meanwhile.
"""

FAILED_MS = 5_000
"""How long calls fail without a token before the next try to fetch one, and how long a token is used although
Google rejects it."""

KEPT = 8
"""How many tokens are masked: the latest, and those before it that calls in flight may carry."""

_FOREVER_MS = 10 * 365 * 86_400_000


class GoogleRequests(httpx.Client):
    """A callable with the interface of `google.auth.transport.Request`, for one thread.

    It reaches Google's metadata servers without the proxy. An overloaded or broken server counts as
    unreachable, so that only the caller retries, not google-auth.
    """

    def __init__(self, proxy: str | None = None, ca_file: Path | None = None) -> None:
        direct: dict[str, None] = dict.fromkeys(f"all://{host}" for host in _METADATA_HOSTS)
        super().__init__(
            verify=tls_context(ca_file),
            timeout=TIMEOUT_S,
            trust_env=False,
            proxy=proxy,
            mounts=direct if proxy else None,
        )

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
            response = self.request(method, url, content=body, headers=headers, timeout=timeout or TIMEOUT_S)
        except httpx.HTTPError as fault:
            raise unreachable(f"{host}: {type(fault).__name__}: {fault}".rstrip(": ")) from fault
        if response.status_code == 429 or response.status_code >= 500:
            raise unreachable(f"{host} answered with status {response.status_code}")
        return GoogleResponse(response.status_code, dict(response.headers), response.content)


class GoogleToken(Authorizer):
    """``authorization: Bearer <token>``, of a service account or of the default credentials.

    The token is fetched first at the first call, in a thread, once for all calls that want one.
    """

    def __init__(
        self,
        credentials: Any = None,
        *,
        requests: Callable[[], GoogleRequests] = GoogleRequests,
        clock: Clock | None = None,
    ) -> None:
        """``credentials`` are google-auth's, ``None`` for the default ones; ``requests`` opens the HTTP
        client.
        """
        self._credentials, self._requests = credentials, requests
        self._clock = clock or SystemClock()
        self._token = ""
        self._given = deque[str](maxlen=KEPT)
        """The latest tokens, the newest first."""
        self._fetched_ms = self._renew_ms = self._ends_ms = 0
        self._failed: CredentialError | TransportError | None = None
        self._fetching: asyncio.Task[None] | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The token, and those before it: a call may end after its token was renewed, even more than once."""
        return tuple(self._given)

    async def sign(
        self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes
    ) -> httpx.Headers:
        """See `Authorizer.sign`."""
        signed = headers.copy()
        signed["authorization"] = f"Bearer {await self._current()}"
        if project := getattr(self._credentials, "quota_project_id", None):
            signed["x-goog-user-project"] = project
        return signed

    def reject(self) -> None:
        """See `Authorizer.reject`. A token just fetched stays: the call may have had the one before."""
        if self._clock.monotonic_ms() >= self._fetched_ms + FAILED_MS:
            self._renew_ms = self._ends_ms = 0

    async def aclose(self) -> None:
        """See `Authorizer.aclose`."""
        if self._fetching is not None:
            self._fetching.cancel()

    async def _current(self) -> str:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._renew_ms and (self._fetching is None or self._fetching.done()):
            self._fetching = asyncio.create_task(self._renew())
        if now_ms >= self._ends_ms:
            if self._fetching is not None:  # a cancelled call does not stop the fetch for others
                await asyncio.shield(self._fetching)
            if self._clock.monotonic_ms() >= self._ends_ms:
                failed = self._failed or TransportError("Google gave a token that has ended already")
                raise type(failed)(str(failed)) from failed
        return self._token

    async def _renew(self) -> None:
        try:
            token, lasts_ms = await asyncio.to_thread(self._fetch)
        except (CredentialError, TransportError) as problem:
            self._failed, self._renew_ms = problem, self._clock.monotonic_ms() + FAILED_MS
            return
        now_ms = self._clock.monotonic_ms()
        if token != self._token:
            self._token = token
            self._given.appendleft(token)
        self._failed, self._fetched_ms, self._ends_ms = None, now_ms, now_ms + lasts_ms
        self._renew_ms = now_ms + max(lasts_ms - RENEW_MS, FAILED_MS)

    def _fetch(self) -> tuple[str, int]:
        """A new token and its lifetime in milliseconds; may read files and call other servers."""
        errors: Any = import_module("google.auth.exceptions")
        try:
            opened = self._requests()
        except UnusableSettingError as problem:
            raise CredentialError(f"no Google token: {problem}") from None
        with opened as request:
            try:
                if self._credentials is None:
                    self._credentials, _ = import_module("google.auth").default([SCOPE], request)
                self._credentials.refresh(request)
            except Exception as problem:  # noqa: BLE001 - of files and servers that it cannot read
                text = str(problem.args[0] if problem.args else type(problem).__name__)
                unreachable = isinstance(problem, errors.TransportError)
                unreachable = unreachable or isinstance(problem.__cause__, errors.TransportError)
                if unreachable or getattr(problem, "retryable", False):
                    raise TransportError(f"no Google token could be fetched: {text}") from None
                raise CredentialError(f"no Google token: {text}") from None
        expiry: datetime | None = self._credentials.expiry  # in UTC, though without a time zone
        if expiry is None:
            return self._credentials.token, _FOREVER_MS
        left = expiry.replace(tzinfo=UTC) - datetime.now(UTC)
        return self._credentials.token, round(left.total_seconds() * 1000)


def google_token(
    name: str, connection: Connection, key: SecretStr | None, proxy: str | None = None
) -> GoogleToken:
    """The authorizer of the connection ``name``; ``key`` is the JSON of a service account's key.

    ``proxy`` is the URL of its proxy, with credentials.

    Raises `ConfigurationError` for another key, and if the package google-auth is not installed.
    """
    field = f"connections.{name}"
    if find_spec("google") is None or find_spec("google.auth") is None:
        remedy = "Install the extra, pip install 'fairlane[vertex]', on every worker."
        raise ConfigurationError(f"{field}.auth", "google", "google-auth is not installed", remedy)
    credentials = None if key is None else _service_account(f"{field}.api_key_env", key)
    return GoogleToken(credentials, requests=partial(GoogleRequests, proxy, connection.ca_file))


def _service_account(field: str, key: SecretStr) -> Any:
    remedy = (
        "Put the whole JSON file of a service account's key into the variable. For other credentials leave "
        'api_key_env out and set GOOGLE_APPLICATION_CREDENTIALS; an access token goes with auth = "bearer".'
    )
    try:
        document = json.loads(key.get_secret_value())
    except (ValueError, RecursionError):
        raise ConfigurationError(field, "(hidden)", "is not JSON", remedy) from None
    kind = document.get("type") if isinstance(document, dict) else None
    if kind != "service_account":
        raise ConfigurationError(field, "(hidden)", "is not the key of a service account", remedy)
    accounts: Any = import_module("google.oauth2.service_account")
    try:
        return accounts.Credentials.from_service_account_info(document, scopes=[SCOPE])
    except (ValueError, TypeError) as problem:
        reason = "a field is missing, or its private_key cannot be read"
        raise ConfigurationError(field, "(hidden)", reason, remedy) from problem


TIMEOUT_S = 10.0
_METADATA_HOSTS = ("metadata.google.internal", "metadata", "169.254.169.254")


class GoogleResponse(NamedTuple):
    """A response as google-auth reads it."""

    status: int
    headers: Mapping[str, str]
    data: bytes

"""Signs requests with the workers' AWS credentials (Signature Version 4), through botocore."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import httpx

from fairlane.config.connections.connection import Connection
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.errors import ConfigurationError
from fairlane_workers.providers.auth.authorizer import Authorizer, CredentialError
from fairlane_workers.transport import TransportError

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials, RefreshableCredentials
    from botocore.session import Session

SERVICE = "bedrock"
FRESH_MS = 60_000
"""How long credentials are used before they are read again. Botocore renews them 10 to 15 minutes before they
expire."""

FAILED_MS = 5_000
"""How long calls fail without credentials before the next try to read them, and how long credentials are used
although Amazon rejects them."""

SKEW_MS = 60_000
"""By how much a rejection's time must differ from that of signatures to replace it. Amazon takes signatures
that are up to five minutes off."""

_SIGNED = ("host", "content-type")
_REGION_IN_HOST = re.compile(r"(?:^|\.)bedrock-(?:runtime|mantle)(?:-fips)?\.([a-z]{2,}(?:-[a-z0-9]+)+)\.")


class SigV4(Authorizer):
    """Signs each request with the credentials of botocore's chain: environment, profile, container or role.

    It reads them at the first call, in a thread. It renews temporary credentials before they expire, and
    reads others again every minute, so it notices a replaced file. Signatures have Amazon's time, where
    that differs from this machine's: it may be wrong, or step.
    """

    def __init__(
        self, region: str, *, clock: Clock | None = None, session: Callable[[], Session] | None = None
    ) -> None:
        """``session`` makes botocore's sessions. Raises `ConfigurationError` if botocore is missing."""
        require_botocore("auth", "sigv4", "botocore.auth", "botocore.session")
        # On DEBUG it logs what it signs, tokens included, and the answers that bring new keys.
        logging.getLogger("botocore").setLevel(logging.INFO)
        self._region, self._clock, self._session = region, clock or SystemClock(), session or _new_session
        self._source: RefreshableCredentials | None = None
        self._held: ReadOnlyCredentials | None = None
        self._failed: CredentialError | TransportError | None = None
        self._read_ms = self._until_ms = 0
        self._looking: asyncio.Task[None] | None = None
        self._ahead_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        self._mark, self._proven = 0, True

    @property
    def secrets(self) -> tuple[str, ...]:
        """See `Authorizer.secrets`."""
        held = self._held
        return () if held is None else tuple(text for text in (held.secret_key, held.token) if text)

    @property
    def mark(self) -> int:
        """See `Authorizer.mark`: it grows whenever signatures get another time."""
        return self._mark

    async def sign(
        self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes
    ) -> httpx.Headers:
        """See `Authorizer.sign`. It signs only host, type and content: proxies change the rest."""
        from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
        from botocore.awsrequest import AWSRequest

        held = await self._credentials()
        known = {name: headers[name] for name in _SIGNED if name in headers}
        request, auth = AWSRequest(method, str(url), known, content), SigV4Auth(held, SERVICE, self._region)
        # The steps of `SigV4Auth.add_auth`, which would take the time of the machine's clock.
        now = datetime.fromtimestamp((self._clock.monotonic_ms() + self._ahead_ms) / 1000, UTC)
        request.context["timestamp"] = now.strftime(SIGV4_TIMESTAMP)
        auth._modify_request_before_signing(request)
        text = auth.string_to_sign(request, auth.canonical_request(request))
        auth._inject_signature_to_request(request, auth.signature(text, request))
        signed = headers.copy()
        signed.update(dict(request.headers.items()))
        return signed

    def reject(self) -> None:
        """See `Authorizer.reject`. Credentials just read stay: the call may have had those before."""
        if self._clock.monotonic_ms() >= self._read_ms + FAILED_MS:
            self._source, self._until_ms = None, 0

    def accept(self, mark: int) -> None:
        """See `Authorizer.accept`."""
        self._proven = self._proven or mark == self._mark

    async def replaced(self, mark: int, now_ms: int) -> bool:
        """See `Authorizer.replaced`. Only a time that a call has proven gives way to another one."""
        ahead_ms = now_ms - self._clock.monotonic_ms()
        if mark == self._mark and self._proven and abs(ahead_ms - self._ahead_ms) > SKEW_MS:
            self._ahead_ms, self._mark, self._proven = ahead_ms, mark + 1, False
        return mark != self._mark or await super().replaced(mark, now_ms)

    async def aclose(self) -> None:
        """See `Authorizer.aclose`."""
        if self._looking is not None:
            self._looking.cancel()

    async def _credentials(self) -> ReadOnlyCredentials:
        if self._clock.monotonic_ms() >= self._until_ms:
            # One thread reads for all calls: a cancelled call does not stop it.
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._refresh())
            await asyncio.shield(self._looking)
        if self._held is None:
            raise self._failed or CredentialError("there are no AWS credentials")
        return self._held

    async def _refresh(self) -> None:
        try:
            self._held, self._failed = await asyncio.to_thread(self._found), None
        except (CredentialError, TransportError) as problem:
            self._source, self._held, self._failed = None, None, problem.with_traceback(None)
        self._read_ms = self._clock.monotonic_ms()
        self._until_ms = self._read_ms + (FRESH_MS if self._held else FAILED_MS)

    def _found(self) -> ReadOnlyCredentials:
        """The credentials of botocore's chain, which may read files, run programs and call other servers."""
        from botocore.credentials import RefreshableCredentials
        from botocore.exceptions import ConnectionError, HTTPClientError

        try:
            found = self._source or self._session().get_credentials()
            if found is not None:
                self._source = found if isinstance(found, RefreshableCredentials) else None
                return found.get_frozen_credentials()
        except (ConnectionError, HTTPClientError) as fault:
            raise TransportError(f"AWS credentials could not be fetched: {fault}") from None
        except Exception as problem:  # noqa: BLE001 - from profiles, files and programs of the user's
            raise CredentialError(f"no AWS credentials: {str(problem) or type(problem).__name__}") from None
        raise CredentialError(
            "no AWS credentials in the worker's environment, profile, container or instance role: set "
            "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the connection's api_key_env"
        )


def region_of(connection: Connection) -> str:
    """The region to sign for: the connection's, else the one in Amazon's host names.

    Raises `ConfigurationError` if neither has one.
    """
    if connection.region is not None:
        return connection.region
    found = _REGION_IN_HOST.search(httpx.URL(connection.base_url).host)
    if found is None:
        problem = f"needed to sign requests, and {connection.base_url} does not show it"
        raise ConfigurationError("region", None, problem, 'Set it, such as "us-east-1".')
    return found[1]


def require_botocore(field: str, value: str, *modules: str) -> None:
    """Load ``modules`` of botocore now: it takes a third of a second, which would delay the first call.

    Raises `ConfigurationError` about ``field`` if it is not installed.
    """
    if find_spec("botocore") is None:
        remedy = "Install the extra: pip install 'fairlane[bedrock]', on every worker."
        raise ConfigurationError(field, value, "the package botocore is not installed", remedy)
    for module in modules:
        import_module(module)


def _new_session() -> Session:
    from botocore.session import Session

    return Session()

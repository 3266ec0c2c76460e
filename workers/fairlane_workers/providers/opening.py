"""Opens the provider of each connection on its own: one that cannot be used harms no other."""

from __future__ import annotations

from fairlane.config.connections.connection import Connection
from fairlane.config.settings import WorkerSecrets
from fairlane.core.clock import Clock
from fairlane.core.events import Event
from fairlane.core.redaction import Secrets
from fairlane.model.outcome import AccessDenied, Outcome
from fairlane.telemetry.logs import get_logger
from fairlane_workers.providers.auth.rotating_key import RotatingKey
from fairlane_workers.providers.contract import OnChunk, Provider, Request
from fairlane_workers.providers.errors.wording import bounded, scrubbed
from fairlane_workers.providers.registry import build_provider
from fairlane_workers.providers.unsupported.adapting import AdaptingProvider

log = get_logger("provider")


class UnusableProvider:
    """Stands for a connection that this worker cannot use; ``reason`` says why.

    The worker serves none of its lanes. A call comes only where a lane is named after a server or after
    another connection, and parks it.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        """Deny the call. Nothing is sent."""
        return AccessDenied(self.reason)

    async def prepare(self) -> None:
        """See `Provider.prepare`."""

    async def aclose(self) -> None:
        """See `Provider.aclose`."""


async def open_provider(
    name: str, connection: Connection, held: WorkerSecrets, clock: Clock, rotating: RotatingKey | None = None
) -> Provider:
    """The provider of a connection, ready for its first call; an `UnusableProvider` if that fails.

    ``rotating``: its key, where that may change.
    """
    key, proxy = held.keys.get(name), held.proxies.get(name)
    try:
        provider = build_provider(name, connection, key, proxy_credentials=proxy, rotating=rotating)
        await provider.prepare()
    except Exception as error:  # noqa: BLE001 - packages of others add protocols
        secrets = Secrets(tuple(each.get_secret_value() for each in (key, proxy) if each is not None))
        reason = bounded(scrubbed(str(error) or type(error).__name__, secrets))
        log.error(Event.CONNECTION_UNUSABLE, connection=name, error=reason)  # noqa: TRY400 - it says all
        return UnusableProvider(reason)
    return AdaptingProvider(name, provider, clock)

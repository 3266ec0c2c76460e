"""Fingerprints the credentials that a worker holds, for its heartbeats and its log."""

import asyncio
import secrets
from collections.abc import Callable, Mapping

from redis.exceptions import RedisError

from fairlane.config.settings import WorkerSecrets
from fairlane.core.events import Event
from fairlane.core.redaction import fingerprint
from fairlane.store.keys import Keys
from fairlane.telemetry.logs import get_logger
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.providers.auth.rotating_key import RotatingKey
from fairlane_workers.transport.pause import sleep

log = get_logger("credentials")

SALT_BYTES = 32
LOOK_S = 1.0


async def deployment_salt(batcher: Batcher, keys: Keys) -> bytes:
    """The salt of this deployment's fingerprints; the first worker to ask draws it at random."""
    while (salt := await batcher.send(("GET", keys.salt))) is None:
        await batcher.send(("SET", keys.salt, secrets.token_bytes(SALT_BYTES), "NX"))
    return bytes(salt)


class CredentialReports:
    """Reports the fingerprints of this worker's keys, and again when one of them changes."""

    def __init__(
        self,
        batcher: Batcher,
        keys: Keys,
        held: WorkerSecrets,
        rotating: Mapping[str, RotatingKey],
        report: Callable[[Mapping[str, str]], None],
        renewed: Callable[[Mapping[str, int]], None] = lambda counts: None,
    ) -> None:
        """``rotating``: keys that may change, by connection. ``report`` gets all fingerprints.

        ``renewed`` gets, by connection, how many keys have replaced one that was denied.
        """
        self._batcher, self._keys, self._rotating = batcher, keys, rotating
        self._report, self._renewed = report, renewed
        self._held = {name: key.get_secret_value().strip() for name, key in held.keys.items()}
        self._texts: dict[str, str] | None = None
        self._reported: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._failed = False

    async def look(self, most_s: float = LOOK_S) -> None:
        """Look at all keys that are due, and report what has changed.

        A key that cannot be read within ``most_s`` is reported later. The others do not wait for it.
        """
        looks = {task for key in self._rotating.values() if (task := key.look_if_due()) is not None}
        if looks:
            await asyncio.wait(looks, timeout=most_s)
        await self._report_fingerprints()
        counts = {name: key.renewals for name, key in self._rotating.items() if key.renewals}
        if counts != self._counts:
            self._counts = counts
            self._renewed(counts)

    async def _report_fingerprints(self) -> None:
        changing = {name: text for name, key in self._rotating.items() if (text := key.fingerprinted)}
        texts = {**self._held, **changing}
        if texts == self._texts:
            return
        try:
            self._reported = await _fingerprints(self._batcher, self._keys, texts, self._reported)
        except RedisError as error:
            if not self._failed:
                log.warning(Event.CREDENTIALS_UNREPORTED, error=str(error))
            self._failed = True
        else:
            self._texts, self._failed = texts, False
            self._report(self._reported)

    async def run(self) -> None:
        """Look once a second until cancelled; without a key that may change there is nothing to look at."""
        while self._rotating or self._texts is None:
            await sleep(LOOK_S)
            await self.look()

    async def aclose(self) -> None:
        """Stop reading keys."""
        await asyncio.gather(*(key.aclose() for key in self._rotating.values()))


async def _fingerprints(
    batcher: Batcher, keys: Keys, texts: Mapping[str, str], known: Mapping[str, str]
) -> dict[str, str]:
    """The fingerprints of ``texts``, by connection; equal texts have equal ones. Logs those not ``known``."""
    if not texts:
        return {}
    salt = await deployment_salt(batcher, keys)
    found = {name: fingerprint(text, salt) for name, text in texts.items()}
    for connection, each in found.items():
        if known.get(connection) != each:
            log.info(Event.CREDENTIAL_IN_USE, connection=connection, fingerprint=each)
    return found

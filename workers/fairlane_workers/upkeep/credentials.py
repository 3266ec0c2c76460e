"""Fingerprints the credentials that a worker holds, for its heartbeats and its log."""

from __future__ import annotations

import secrets

from fairlane.config.settings import WorkerSecrets
from fairlane.core.events import Event
from fairlane.core.redaction import fingerprint
from fairlane.store.keys import Keys
from fairlane.telemetry.logs import get_logger
from fairlane_workers.execution.batcher import Batcher

log = get_logger("credentials")

SALT_BYTES = 32


async def deployment_salt(batcher: Batcher, keys: Keys) -> bytes:
    """The salt of this deployment's fingerprints; the first worker to ask draws it at random."""
    await batcher.send(("SET", keys.salt, secrets.token_bytes(SALT_BYTES), "NX"))
    return bytes(await batcher.send(("GET", keys.salt)))


async def fingerprints(batcher: Batcher, keys: Keys, held: WorkerSecrets) -> dict[str, str]:
    """Fingerprints of the keys that this worker holds, by connection, logged; equal keys have equal ones."""
    if not held.keys:
        return {}
    salt = await deployment_salt(batcher, keys)
    found = {name: fingerprint(key.get_secret_value().strip(), salt) for name, key in held.keys.items()}
    for connection, each in found.items():
        log.info(Event.CREDENTIAL_IN_USE, connection=connection, fingerprint=each)
    return found

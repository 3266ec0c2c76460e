"""Which credentials a worker holds, by their fingerprints: what its beats tell, and its log."""

from __future__ import annotations

import secrets

from fairlane.logs import get_logger
from fairlane.redaction import fingerprint
from fairlane.settings import WorkerSecrets
from fairlane.store.keys import Keys
from fairlane_workers.batcher import Batcher

log = get_logger("credentials")

SALT_BYTES = 32


async def deployment_salt(batcher: Batcher, keys: Keys) -> bytes:
    """What this deployment's fingerprints are made with: chosen at random by whoever asks first."""
    await batcher.send(("SET", keys.salt, secrets.token_bytes(SALT_BYTES), "NX"))
    return bytes(await batcher.send(("GET", keys.salt)))


async def fingerprints(batcher: Batcher, keys: Keys, held: WorkerSecrets) -> dict[str, str]:
    """One for each connection whose key this worker holds, logged: equal keys have equal ones."""
    if not held.keys:
        return {}
    salt = await deployment_salt(batcher, keys)
    found = {name: fingerprint(key.get_secret_value().strip(), salt) for name, key in held.keys.items()}
    for connection, told in found.items():
        log.info("credential_in_use", connection=connection, fingerprint=told)
    return found

"""Keeps the owner of each connection's lanes, and its credential, for the next leader."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.write.attempts import bound, named_keys
from fairlane.store.write.audit import UNNAMED, Act, Auditor


@dataclass(frozen=True, slots=True)
class Scope:
    """A connection's scope. ``lanes``: the owner of its lanes, itself or a connection with which it shares
    them.

    ``credential``: the fingerprint in force, empty if no worker has reported one; ``held``: all that workers
    last reported. Since ``left_ms`` (server time) it has its own lanes, and no longer those of ``left``.
    """

    lanes: str
    credential: str = ""
    held: tuple[str, ...] = ()
    left: str = ""
    left_ms: int = 0


class Scopes:
    """The scopes of a deployment's connections in Redis. Only the leader changes them."""

    def __init__(self, redis: RedisClient, keys: Keys, auditor: Auditor = UNNAMED) -> None:
        self._redis, self._keys, self._auditor = redis, keys, auditor

    def read(self) -> dict[str, Scope]:
        """The scope of each connection as it was last saved."""
        stored = self._redis.hgetall(self._keys.scopes)
        return {name.decode(): _read(json.loads(text)) for name, text in stored.items()}

    def save(
        self,
        changes: Mapping[str, Scope | None],
        rotated: Mapping[str, str],
        lanes: Sequence[str],
        epoch: int,
        now_ms: str | int = "",
        *,
        known: bool = False,
    ) -> list[str] | None:
        """Save these scopes (``None``: the connection is gone). Returns ``None`` if this is not the leader.

        ``rotated``: changed credentials' fingerprints, by connection. Parked ones of ``lanes`` are resumed
        with a single probe, and returned. Fingerprints that are ``known`` are audited only with such a lane.
        """
        keys = self._keys
        records = {name: json.dumps(asdict(scope)) if scope else False for name, scope in changes.items()}
        audited = ""
        if rotated:
            audited = self._auditor.entry(
                Act.CREDENTIAL_CHANGED, ", ".join(rotated), fingerprints=dict(rotated)
            )
        call = bound(
            "scopes_save",
            named_keys(keys, lanes=[keys.lane(lane) for lane in lanes]),
            now_ms=now_ms,
            epoch=epoch,
            records=json.dumps(records),
            names=json.dumps(list(lanes)),
            audit=audited,
            known=int(known),
        )
        opened = call.run(self._redis)
        return None if opened is None else [lane.decode() for lane in opened]

    def publish(self, connections: Mapping[str, Mapping[str, Any]]) -> None:
        """Publish the connections' fields for clients, read by `fairlane.store.read.reading`."""
        self._redis.set(self._keys.catalog, json.dumps({"connections": connections}))


def _read(record: Mapping[str, Any]) -> Scope:
    """Parse a record; fields of a later version are ignored."""
    known: dict[str, Any] = {name: record[name] for name in Scope.__dataclass_fields__ if name in record}
    known["held"] = tuple(known.get("held", ()))
    return Scope(**known)

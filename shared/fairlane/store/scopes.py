"""Whose lanes each connection uses, and by which credential: what a leader has chosen, for the next one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fairlane.store.audit import UNNAMED, Act, Auditor
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.script import script


@dataclass(frozen=True, slots=True)
class Scope:
    """One connection's. Its lanes carry the name of ``lanes``, itself or one with which it shares them.

    ``credential`` is the fingerprint in force, empty where no worker has told one; ``held`` are all that
    workers were found to hold last. Since ``left_ms`` (server time) it has lanes of its own and not those of
    ``left``.
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
        """As they were settled last, by connection."""
        stored = self._redis.hgetall(self._keys.scopes)
        return {name.decode(): _read(json.loads(text)) for name, text in stored.items()}

    def settle(
        self,
        changes: Mapping[str, Scope | None],
        rotated: Mapping[str, str],
        lanes: Sequence[str],
        epoch: int,
        now_ms: str | int = "",
    ) -> list[str] | None:
        """Keep these, ``None`` for connections that are gone; ``None`` comes back if this is not the leader.

        ``rotated``: fingerprints of credentials that have changed, by connection. Those of ``lanes`` that are
        parked are opened with a single probe, and returned.
        """
        keys = self._keys
        records = {name: json.dumps(asdict(scope)) if scope else False for name, scope in changes.items()}
        told = ""
        if rotated:
            told = self._auditor.entry(Act.CREDENTIAL_CHANGED, ", ".join(rotated), fingerprints=dict(rotated))
        call = script("scopes_settle").bind(
            {
                "leader": keys.leader,
                "scopes": keys.scopes,
                "dirty": keys.dirty,
                "audit": keys.audit,
                "lanes": [keys.lane(lane) for lane in lanes],
            },
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "channel": keys.wake,
                "records": json.dumps(records),
                "names": json.dumps(list(lanes)),
                "audit": told,
            },
        )
        opened = call.run(self._redis)
        return None if opened is None else [lane.decode() for lane in opened]


def _read(record: Mapping[str, Any]) -> Scope:
    """A record, of which a later version may say more."""
    known: dict[str, Any] = {name: record[name] for name in Scope.__dataclass_fields__ if name in record}
    known["held"] = tuple(known.get("held", ()))
    return Scope(**known)

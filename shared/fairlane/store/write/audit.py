"""The audit log in Redis: who changed what and when, in a stream that only grows at its end.

Verbs append to it in the same script as the change (``lua/lib/core/audit.lua``).
"""

import getpass
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys

KEEP = 100_000
PAGE = 1000

Role = Literal["team", "operator", "scheduler", "unnamed"]


class Act(StrEnum):
    """Actions in the log."""

    SUBMITTED = "run_submitted"
    CONTINUED = "run_continued"
    REFUSED = "run_refused"
    CANCELLED = "run_cancelled"
    RUN_PAUSED = "run_paused"
    RUN_RESUMED = "run_resumed"
    ENDED = "run_ended_early"
    ARCHIVED = "run_archived"
    LIMITED = "lane_limited"
    PAUSED = "lane_paused"
    OPENED = "lane_resumed"
    DRAINED = "lane_drained"
    CREDENTIAL_CHANGED = "credential_changed"
    WORKER_ASKED = "worker_asked"
    BUDGETED = "team_budgeted"
    TEAM_ADDED = "team_added"
    TEAM_ROTATED = "team_rotated"
    TEAM_REMOVED = "team_removed"


@dataclass(frozen=True, slots=True)
class Auditor:
    """Makes entries for one actor; the log keeps about ``keep`` entries."""

    role: Role = "unnamed"
    who: str = ""
    keep: int = KEEP

    def entry(self, act: Act, what: str, team: str = "", **detail: Any) -> str:
        """The argument ``audit`` of a verb: this actor did ``act`` to ``what``."""
        return self._entry(self.role, self.who, act, what, team, detail)

    def of_team(self, act: Act, team: str, run: str, **detail: Any) -> str:
        """An entry for an action that a team's client has requested."""
        return self._entry("team", team, act, run, team, detail)

    def append(self, redis: Any, keys: Keys, act: Act, what: str, team: str = "", **detail: Any) -> None:
        """Append an entry for a change without a verb; ``redis`` may be the transaction of that change."""
        entry_fields = json.loads(self.entry(act, what, team, **detail))
        entry_fields["detail"] = json.dumps(entry_fields["detail"])
        del entry_fields["keep"]
        redis.xadd(keys.audit, entry_fields, maxlen=self.keep, approximate=True)

    def _entry(self, role: Role, who: str, act: Act, what: str, team: str, detail: Mapping[str, Any]) -> str:
        entry_fields = {"keep": self.keep, "role": role, "who": who, "act": act, "team": team, "what": what}
        return json.dumps({**entry_fields, "detail": detail})


UNNAMED = Auditor()


def operator() -> str:
    """``user@host`` of this process, from its operating system."""
    return f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    try:
        import pwd
    except ModuleNotFoundError:  # Windows has the name only in the environment
        return _named_user()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a user id without a name
        return str(os.getuid())


def _named_user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, OSError):  # there is no name; the error depends on Python's version
        return "unknown"


@dataclass(frozen=True, slots=True)
class Audited:
    """One entry. ``role`` tells whether ``who`` is a team, an operator (``user@host``) or a scheduler."""

    id: str
    role: str
    who: str
    act: str
    team: str
    what: str
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def at_ms(self) -> int:
        """When it happened, by the server's clock."""
        return int(self.id.partition("-")[0])


class AuditLog:
    """Reads the log a page at a time."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._key = redis, keys.audit

    def since(self, at_ms: int = 0, team: str | None = None) -> Iterator[Audited]:
        """Entries from ``at_ms`` on, the oldest first; of a ``team``, or of all."""
        return self.after(f"{max(0, at_ms - 1)}-18446744073709551615" if at_ms > 0 else "0-0", team)

    def after(self, last: str, team: str | None = None) -> Iterator[Audited]:
        """The entries after ``last``."""
        while page := self._redis.xrange(self._key, min=f"({last}", max="+", count=PAGE):
            for identity, fields in page:
                last = identity.decode()
                entry = _read(last, fields)
                if team is None or entry.team == team:
                    yield entry

    def last(self) -> str:
        """The newest entry's id, whether or not it is still there."""
        newest = self._redis.xrevrange(self._key, count=1)
        return str(newest[0][0].decode()) if newest else "0-0"

    def following(self, last: str, wait_ms: int, team: str | None = None) -> tuple[str, list[Audited]]:
        """Wait ``wait_ms`` for entries after ``last``. Returns the new ``last``, and those entries."""
        reply = self._redis.xread({self._key: last}, count=PAGE, block=wait_ms)
        found = [_read(identity.decode(), fields) for _, page in reply for identity, fields in page]
        return (found[-1].id if found else last), [e for e in found if team is None or e.team == team]


def _read(identity: str, fields: Mapping[bytes, bytes]) -> Audited:
    entry_fields = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
    role, who, act, team, what = (
        entry_fields.get(name, "") for name in ("role", "who", "act", "team", "what")
    )
    return Audited(identity, role, who, act, team, what, json.loads(entry_fields.get("detail", "{}")))

"""Names the reason why a Redis that answers refuses commands: it is full, read-only, loading or busy.

Each of these states ends, so callers wait and try again.
"""

import re
from typing import NamedTuple

from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)


class Refusal(NamedTuple):
    """Why Redis cannot be used, and the remedy."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}. {self.remedy}."


RESUMES = "all that waits resumes by itself then"

FULL = Refusal(
    "Redis is full: it uses all the memory that its maxmemory allows",
    f"Raise maxmemory or delete keys; {RESUMES}",
)

REPLICA = Refusal(
    "Redis is a replica and takes no writes",
    f"Name the primary in redis.url, or let the failover end; {RESUMES}",
)

DISK = Refusal("Redis cannot write to its disk", f"Make room on its disk and see the server's log; {RESUMES}")

LONELY = Refusal(
    "Redis has fewer replicas than its min-replicas-to-write and takes no writes",
    f"Start its replicas, or lower min-replicas-to-write; {RESUMES}",
)

CROWDED = Refusal(
    "Redis takes no more connections: as many as its maxclients allows are open",
    f"Raise maxclients, or end processes that need no connection; {RESUMES}",
)

RETYPED = Refusal(
    "a key of Fairlane's was replaced by one of another type",
    f"Delete that key, which `fairlane doctor` names; {RESUMES}",
)

# Redis and Valkey send it to a new connection in place of the first reply.
_CROWDED = re.compile(r"(ERR )?max number of clients reached")

# Error codes of Redis and Valkey: https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors
_STATES = {
    "OOM": FULL,
    "WRONGTYPE": RETYPED,
    "READONLY": REPLICA,
    # A primary that becomes a replica ends every blocking pop with this.
    "UNBLOCKED": REPLICA,
    "LOADING": Refusal("Redis is loading its data from disk", f"Wait until it has; {RESUMES}"),
    "MISCONF": DISK,
    "NOREPLICAS": LONELY,
    "BUSY": Refusal("Redis is busy with one long script", f"Wait, or run SCRIPT KILL; {RESUMES}"),
    "MASTERDOWN": Refusal("this replica of Redis has lost its primary", f"Start the primary; {RESUMES}"),
    "CLUSTERDOWN": Refusal(
        "the Redis cluster is down: no node has the slot of our keys",
        f"Start its nodes; {RESUMES}",
    ),
}

# redis-py strips the codes of errors that have a class.
_CLASSES: dict[type[RedisError], str] = {
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    BusyLoadingError: "LOADING",
    MasterDownError: "MASTERDOWN",
    ClusterDownError: "CLUSTERDOWN",
}

# The code begins the text. A pipeline puts the command in front of it, and Redis 6.2 the line of the script.
_CODE = re.compile(rf"(?:^|-|@user_script: ?\d+: )({'|'.join(_STATES)}) ")
OF_PIPELINE = "of pipeline caused error: "
"""redis-py's text between a command of a pipeline and the server's error."""


def refusing_state(error: BaseException) -> Refusal | None:
    """The state in which Redis refused a command; ``None`` for any other error."""
    for kind, code in _CLASSES.items():
        if isinstance(error, kind):
            return _STATES[code]
    if not isinstance(error, RedisError):
        return None
    said = str(error).rpartition(OF_PIPELINE)[2]
    if _CROWDED.match(said):
        return CROWDED
    found = _CODE.search(said)
    return None if found is None else _STATES[found[1]]


def is_full(error: BaseException) -> bool:
    """Whether Redis refused a command because its memory is used up."""
    return refusing_state(error) is FULL

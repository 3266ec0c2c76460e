"""What Redis still holds after all runs have ended, although nothing needs it."""

from __future__ import annotations

from redis import Redis

from fairlane.store.keys import Keys
from tests.support.conservation import Books
from tests.support.contents import read_contents

QUEUE = "fairlane.lane."
SHOWN = 3
KILLED = "green"
"""The team of clients that are killed while they submit."""


def leftovers(redis: Redis, keys: Keys) -> dict[str, str]:
    """By kind: leases, jobs, messages, counters and keys without an expiry that should have gone."""
    contents = read_contents(redis)
    found = dict[str, str]()
    for name in (keys.leases, keys.leased, keys.delayed, keys.active):
        if name in contents:
            found[name.removeprefix(keys.prefix)] = str(contents[name].value)[:200]
    messages = {name: content for name, content in contents.items() if name.startswith((QUEUE, "unacked"))}
    if messages:
        found["messages"] = ", ".join(messages)
    flying = [
        f"{name}: {content.value[b'inflight']!r}"
        for name, content in contents.items()
        if name.endswith(":state") and ":lane:" in name and isinstance(content.value, dict)
        if content.value.get(b"inflight", b"0") != b"0"
    ]
    if flying:
        found["in flight"] = ", ".join(flying)
    owned = (f"{keys.prefix}run:", f"{keys.prefix}team:")
    kept = [
        name
        for name, content in contents.items()
        if name.startswith(owned) and name.count(":") > keys.prefix.count(":") + 2 and not content.expires
    ]
    if kept:
        found["without expiry"] = ", ".join(kept[:SHOWN])
    if redis.exists(keys.runs(KILLED)):
        found["killed client"] = "its run was submitted"
    try:
        Books(redis, keys).check()
    except (AssertionError, KeyError) as error:  # a run that expires while it is read lacks fields
        found["inconsistent"] = repr(error)[:300]
    return found

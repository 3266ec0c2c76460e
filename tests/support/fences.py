"""Redis users of teams on a real server, and a log of the commands that they send."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from redis import ConnectionPool, Redis, UnixDomainSocketConnection

from fairlane.store.keys import Keys
from fairlane.store.write.acl import Access, Users, dashboard_access, team_access, url_of

PASSWORD = "a-password-of-tests"
KEYS = Keys("test")


def socket_url(redis: Redis) -> str:
    """The URL of the server of the client ``redis``."""
    return f"unix://{redis.connection_pool.connection_kwargs['path']}?db=0"


@contextmanager
def admitted(redis: Redis, access: Access) -> Iterator[Redis]:
    """A client of a new user with these rules; the user is removed when the block ends."""
    users = Users(redis)
    users.make(access, PASSWORD)
    try:
        Recording.sent.clear()
        pool = ConnectionPool.from_url(url_of(socket_url(redis), access.user, PASSWORD))
        setattr(pool, "connection_class", Recording)  # noqa: B010 - declared as a network connection
        with Redis.from_pool(pool) as client:
            yield client
    finally:
        users.remove(access.user)


def member_of(redis: Redis, team: str) -> Any:
    """Like `admitted`, with the rules of a team's client."""
    return admitted(redis, team_access(KEYS, "test", team))


def onlooker_of(redis: Redis, team: str) -> Any:
    """Like `admitted`, with the rules of a team's dashboard."""
    return admitted(redis, dashboard_access(KEYS, "test", team))


class Recording(UnixDomainSocketConnection):
    """A connection that records the names of the commands that it sends, in lower case."""

    sent: ClassVar[set[str]] = set()

    def send_command(self, *words: Any, **options: Any) -> Any:
        self._keep(words)
        return super().send_command(*words, **options)

    def pack_commands(self, commands: Iterable[Any]) -> Any:
        listed = list(commands)
        for words in listed:
            self._keep(words)
        return super().pack_commands(listed)

    def _keep(self, words: Any) -> None:
        shown = " ".join(str(word) for word in words[:2]).lower().split()
        self.sent.add("|".join(shown[:2]) if shown[0] == "client" else shown[0])

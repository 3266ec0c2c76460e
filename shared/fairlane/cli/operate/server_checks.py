"""The checks of `fairlane doctor` on Redis, the broker, the archive and this machine's clock."""

from collections.abc import Iterator

from fairlane.cli.operate.findings import Clocks, Finding, Seen, Unmoved, fail, ok, warn
from fairlane.core.clock import span
from fairlane.core.figures import percent
from fairlane.store.connection.server_states import FULL
from fairlane.store.read.overview import ServerView

OLDEST_SERVER = (6, 2)
CLOCKS_APART_MS = 1000
MEMORY_NEARLY_FULL = 0.8
CONNECTIONS_NEARLY_ALL = 0.8


def check_server(server: ServerView | None) -> Iterator[Finding]:
    """Is Redis recent enough, does it keep its data, and does it take writes?"""
    if server is None:
        remedy = "An imitation (fakeredis) is for trying out only; a real server must let this user run INFO."
        yield warn("redis version", "the server does not report its version", remedy)
        return
    shown = f"{server.program} {server.version}"
    if server.program == "Redis" and _numbers(server.version) < OLDEST_SERVER:
        yield fail("redis version", shown, "Use Redis 6.2 or later, or Valkey.")
    else:
        yield ok("redis version", shown)
    if server.replica:
        remedy = "Name the primary in redis.url."
        yield fail("redis role", "this server is a replica and takes no writes", remedy)
    elif server.refused is not None:
        yield fail("redis writes", server.refused.problem, f"{server.refused.remedy}.")
    yield _check_persistence(server)
    yield _check_memory(server)
    if server.clients > server.most_clients * CONNECTIONS_NEARLY_ALL > 0:
        detail = f"{server.clients:,} of the {server.most_clients:,} connections of maxclients are open"
        remedy = "Raise maxclients: beyond it Redis refuses scheduler, workers and clients."
        yield warn("redis connections", detail, remedy)


def check_expiry(frees_in_background: bool | None) -> Iterator[Finding]:
    """Does Redis continue to serve while it frees an expired run? Yields nothing if that is unknown."""
    if frees_in_background:
        yield ok("redis expiry", "expired runs are freed in the background")
    elif frees_in_background is False:
        detail = "Redis serves nobody while it frees an expired run: 1 ms for about 1,500 results"
        yield warn("redis expiry", detail, "Set `lazyfree-lazy-expire yes`.")


def check_archive(unmoved: Unmoved | None, now_ms: int) -> Iterator[Finding]:
    """Does the archive receive finished runs?"""
    if unmoved is None:
        return
    if unmoved.problem:
        remedy = "Finished runs stay in Redis until archive.hold_seconds after their end. Correct it by then."
        yield warn("archive", f"it cannot be read from here: {unmoved.problem}", remedy)
    elif not unmoved.runs:
        waiting = f"{unmoved.due:,} finished runs are" if unmoved.due > 1 else "1 finished run is"
        detail = f"{waiting} about to be moved" if unmoved.due else "no finished run waits to be moved"
        yield ok("archive", f"it answers; {detail}")
    if not unmoved.runs:
        return
    ago = span(max(0, now_ms - unmoved.oldest_ms))
    detail = f"{unmoved.runs:,} finished runs wait to be moved; the first ended {ago} ago"
    remedy = "See archive_failed in the leader's log. They expire archive.hold_seconds after their end."
    yield fail("archive", detail, remedy)


def check_broker(seen: Seen) -> Iterator[Finding]:
    """Does the broker answer and take our queues, if it is not the Redis with the state?"""
    broker = seen.broker
    if broker is None:
        return
    if broker.problem is None:
        yield ok("broker", broker.summary)
    else:
        yield fail("broker", broker.problem, broker.remedy)


def check_clocks(clocks: Clocks) -> Finding:
    """Do the clocks agree? Decisions use the server's clock; a difference only misleads readers of logs."""
    apart = clocks.apart_ms
    if clocks.ahead_ms >= CLOCKS_APART_MS:
        detail = f"Redis's clock has stepped back; Fairlane's time is {span(clocks.ahead_ms)} ahead of it"
        remedy = "Do nothing: it runs 1 % slow until they agree. Dates of runs are ahead, too."
        return warn("clock", detail, remedy)
    if abs(apart) < CLOCKS_APART_MS:
        return ok("clock", f"this machine and Redis agree within {clocks.round_trip_ms + 1} ms")
    side = "ahead of" if apart > 0 else "behind"
    remedy = "No decision uses this clock, but logs mislead: synchronize both by NTP."
    return warn("clock", f"this machine is {span(abs(apart))} {side} Redis", remedy)


def _check_persistence(server: ServerView) -> Finding:
    if server.append_failed:
        remedy = "See the server's log: its disk may be full."
        return fail("redis persistence", "the last write to the append-only file failed", remedy)
    if server.append_only:
        return ok("redis persistence", "append-only file")
    remedy = "Set `appendonly yes`: without it a restart of Redis forgets runs."
    return warn("redis persistence", "the append-only file is off", remedy)


def _check_memory(server: ServerView) -> Finding:
    used, limit = server.memory_used, server.memory_limit
    if server.evicts:
        remedy = "Set `maxmemory-policy noeviction`: eviction deletes runs."
        return (fail if limit else warn)("redis memory", f"maxmemory-policy is {server.eviction}", remedy)
    if server.refusing is FULL:
        return fail("redis memory", FULL.problem, f"{FULL.remedy}.")
    if limit and used > limit * MEMORY_NEARLY_FULL:
        remedy = "Raise maxmemory, or keep finished runs for less long (scheduler.finished_ttl_seconds)."
        return warn("redis memory", f"{percent(used, limit)}% of maxmemory are in use", remedy)
    return ok("redis memory", f"nothing is evicted; {used / 2**20:,.0f} MiB in use")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())

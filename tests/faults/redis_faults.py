"""Faults of Redis itself."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import redis
from redis.exceptions import RedisError

from fairlane.embedded.ports import LOOPBACK, free_ports
from fairlane.embedded.server import EmbeddedRedis
from tests.faults.history import FORGOTTEN_S
from tests.faults.kinds import ANY
from tests.faults.schedule import Timed
from tests.faults.stage import Stage, fault
from tests.support.wait import wait_until

ENDLESS = "while true do end"
BUSY = "local start = os.clock() repeat until (os.clock() - start) * 1000 > tonumber(ARGV[1])"
BUSY_MS = 60
SYNCED_S = 10.0
LOST_ROWS = 20
REWRITE_S = 0.2
FLUSH_S = 0.1
BUSY_AFTER_MS, USUAL_BUSY_AFTER_MS = 100, 5000


@fault("redis_kill")
def kill(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """SIGKILL: everything that it confirmed is in its file."""
    stage.deployment.server.kill()
    yield (ANY,)
    stage.deployment.server.start()


@fault("redis_term")
def end(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """SIGTERM, and a start."""
    stage.deployment.server.process.stop()
    yield (ANY,)
    stage.deployment.server.start()


@fault("redis_start_bare")
def start_bare(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """SIGKILL, and it starts again without functions and scripts, as a server restored from keys alone."""
    yield from kill(stage, timed)
    with stage.deployment.servers.client() as server:
        _forget_code(server)


@fault("functions_lost")
def lose_functions(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """It loses all functions and scripts again and again, as when other versions load theirs in turn."""
    yield from _asked_often(stage, FLUSH_S, _forget_code)


def _forget_code(server: redis.Redis) -> None:
    server.function_flush()
    server.script_flush()


@fault("redis_busy")
def keep_busy(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """One endless script occupies it: it answers BUSY until an operator kills the script."""
    with stage.deployment.servers.client() as server:
        server.config_set("busy-reply-threshold", BUSY_AFTER_MS)
        stage.beside(lambda: _run_endless(stage))
        yield (ANY,)
        wait_until(lambda: _killed_script(server), timeout=SYNCED_S)
        server.config_set("busy-reply-threshold", USUAL_BUSY_AFTER_MS)


def _run_endless(stage: Stage) -> None:
    with stage.deployment.servers.client() as server, suppress(RedisError):
        server.eval(ENDLESS, 0)


def _killed_script(server: redis.Redis) -> bool:
    """Whether no script runs any more. It answers nothing before it is busy for long enough."""
    with suppress(RedisError):
        server.script_kill()
    with suppress(RedisError):
        return bool(server.ping())
    return False


@fault("redis_stop")
def stop(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """SIGSTOP past every lease."""
    stage.deployment.server.kill(signal.SIGSTOP)
    yield (ANY,)
    stage.deployment.server.kill(signal.SIGCONT)


@fault("redis_power")
def power(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """SIGKILL, and the last second of its file is gone."""
    stage.deployment.one.lose_a_second()
    yield (ANY,)
    stage.workload.forget(timed.seconds + FORGOTTEN_S, stage.now)
    stage.deployment.server.start()


@fault("submit_lost")
def lose_submission(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """A power loss right after a client was told that its run is submitted."""
    stage.workload.submit_another(f"lost-{timed.at_s:g}", "red", "d", LOST_ROWS, {"may_be_lost": True})
    yield from power(stage, timed)


@fault("redis_full")
def full(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """It refuses whatever takes memory."""
    with redis.Redis.from_url(stage.deployment.server.url) as server:
        server.config_set("maxmemory", 1)
        yield (ANY,)
        server.config_set("maxmemory", 0)


@fault("redis_slow")
def slow(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """It is busy for half of the time, 60 ms each time."""
    yield from _asked_often(stage, BUSY_MS / 1000, lambda server: server.eval(BUSY, 0, BUSY_MS))


@fault("redis_rewrite")
def rewrite(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """It rewrites its append-only file again and again."""
    yield from _asked_often(stage, REWRITE_S, lambda server: server.bgrewriteaof())


def _asked_often(
    stage: Stage, every_s: float, ask: Callable[[redis.Redis], object]
) -> Iterator[tuple[str, ...]]:
    over = threading.Event()

    def run() -> None:
        with stage.deployment.servers.client() as server:
            while not over.wait(every_s):
                with suppress(RedisError):
                    ask(server)

    stage.beside(run)
    yield (ANY,)
    over.set()


@fault("redis_disk_full")
def fill_disk(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """Its append-only file cannot grow: it refuses writes (MISCONF) until there is room again."""
    server, files = stage.deployment.server, resource.RLIMIT_FSIZE
    soft, hard = resource.prlimit(server.pid, files)
    resource.prlimit(server.pid, files, (stage.deployment.one.log_bytes(), hard))
    yield (ANY,)
    resource.prlimit(server.pid, files, (soft, hard))


@fault("redis_failover")
def fail_over(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """The primary dies, and its replica, which copies it asynchronously, takes its place and address."""
    with _replica(stage, timed) as (replica, _):
        stage.deployment.one.fail_over(replica)
        stage.workload.forget(FORGOTTEN_S, stage.now)
    yield (ANY,)


@fault("redis_failover_bare")
def fail_over_bare(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """A replica takes over that has no functions, as one that copied the keys with another tool."""
    with _replica(stage, timed) as (replica, _):
        stage.deployment.one.fail_over(replica, before_use=_forget_code)
        stage.workload.forget(FORGOTTEN_S, stage.now)
    yield (ANY,)


@fault("redis_lag")
def fail_over_late(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """A replica that got nothing for some time takes over: all of that is lost, submissions too."""
    with _replica(stage, timed) as (replica, proxy):
        stage.deployment.proxies.each([proxy], lambda proxy: proxy.cut(forth=True, back=True))
        begin = stage.now
        yield (ANY,)
        stage.deployment.one.fail_over(replica)
        stage.workload.forget(stage.now - begin + FORGOTTEN_S, stage.now)


@contextmanager
def _replica(stage: Stage, timed: Timed) -> Iterator[tuple[EmbeddedRedis, str]]:
    """Another server that has copied all of the primary, and the proxy that it copies through, by its name.

    Faults that were drawn one after the other may overlap where one was slow, so that each has its own proxy.
    """
    deployment, name = stage.deployment, f"replica-{stage.deployment.schedules}-{timed.at_s:g}"
    port = deployment.proxies.add(name, deployment.one.port)
    try:
        yield _copied(stage, name, port), name
    finally:
        deployment.proxies.remove(name)


def _copied(stage: Stage, name: str, port: int) -> EmbeddedRedis:
    deployment = stage.deployment
    replica = deployment.one.start_another(name)
    with redis.Redis.from_url(deployment.server.url) as primary, redis.Redis.from_url(replica.url) as other:
        primary.config_set("repl-diskless-sync-delay", 0)
        other.config_set("repl-diskless-sync-delay", 0)
        other.replicaof("127.0.0.1", port)
        wait_until(lambda: other.info("replication")["master_link_status"] == "up", timeout=SYNCED_S)
    return replica


@fault("sentinel_failover")
def replace_primary(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """The primary dies, Sentinels promote its replica, and it returns as a replica of that."""
    stage.deployment.fleet.restore()
    _promoted(stage, stage.now)
    yield (ANY,)
    stage.deployment.fleet.restore()


@fault("sentinel_lag")
def replace_primary_late(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """The same after the replica got nothing for some time: all of that is lost, submissions too."""
    fleet = stage.deployment.fleet
    fleet.restore()
    with fleet.client(fleet.replica()) as replica:
        replica.replicaof(LOOPBACK, next(free_ports()))  # where nobody listens
    begin = stage.now
    yield (ANY,)
    _promoted(stage, begin)
    fleet.restore()


@fault("sentinel_stop")
def replace_living_primary(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """The primary stands still, is replaced, and goes on: Sentinels demote it ten seconds later."""
    fleet, begin = stage.deployment.fleet, stage.now
    fleet.restore()
    before = fleet.stop_primary()
    yield (ANY,)
    fleet.servers[before].kill(signal.SIGCONT)
    fleet.demoted(before)
    stage.workload.forget(stage.now - begin + FORGOTTEN_S, stage.now)


def _promoted(stage: Stage, behind_since: float) -> None:
    """Kill the primary, and return once the other server is one; all since ``behind_since`` may be lost."""
    killed_s = stage.now
    stage.deployment.fleet.kill_primary()
    stage.workload.forget(killed_s - behind_since + FORGOTTEN_S, stage.now)
    stage.deployment.fleet.promoted()

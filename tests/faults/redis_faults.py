"""Faults of Redis itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import redis
from redis.exceptions import RedisError

from tests.faults.kinds import ANY
from tests.faults.schedule import Timed
from tests.faults.stage import Stage, fault
from tests.support.wait import wait_until

BUSY = "local start = os.clock() repeat until (os.clock() - start) * 1000 > tonumber(ARGV[1])"
BUSY_MS = 60
SYNCED_S = 10.0
LOST_ROWS = 20


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


@fault("redis_stop")
def stop(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """SIGSTOP past every lease."""
    stage.deployment.server.kill(signal.SIGSTOP)
    yield (ANY,)
    stage.deployment.server.kill(signal.SIGCONT)


@fault("redis_power")
def power(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """SIGKILL, and the last second of its file is gone."""
    stage.deployment.lose_a_second()
    yield (ANY,)
    stage.deployment.server.start()


@fault("submit_lost")
def lose_submission(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """A power loss right after a client was told that its run is submitted."""
    stage.workload.submit_another(f"lost-{timed.at_s:g}", "red", "d", LOST_ROWS, may_be_lost=True)
    yield from power(stage, timed)


@fault("redis_full")
def full(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """It refuses whatever takes memory."""
    server = redis.Redis.from_url(stage.deployment.server.url)
    with server:
        server.config_set("maxmemory", 1)
        yield (ANY,)
        server.config_set("maxmemory", 0)


@fault("redis_slow")
def slow(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """It is busy for half of the time, 60 ms each time."""
    over = threading.Event()

    def occupy() -> None:
        with redis.Redis.from_url(stage.deployment.server.url) as server, suppress(RedisError):
            while not over.wait(BUSY_MS / 1000):
                server.eval(BUSY, 0, BUSY_MS)

    thread = threading.Thread(target=occupy, daemon=True)
    thread.start()
    yield (ANY,)
    over.set()
    thread.join()


@fault("redis_failover")
def fail_over(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """The primary dies, and its replica, which copies it asynchronously, takes its place and address."""
    deployment = stage.deployment
    name = f"redis-{deployment.schedules}-{timed.at_s:g}"
    replica = deployment.start_replica(name)
    with redis.Redis.from_url(deployment.server.url) as primary, redis.Redis.from_url(replica.url) as other:
        primary.config_set("repl-diskless-sync-delay", 0)
        other.config_set("repl-diskless-sync-delay", 0)
        other.replicaof("127.0.0.1", primary.connection_pool.connection_kwargs["port"])
        wait_until(lambda: other.info("replication")["master_link_status"] == "up", timeout=SYNCED_S)
    deployment.fail_over(replica)
    yield (ANY,)

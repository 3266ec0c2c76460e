"""Faults of the broker's queues: deleted, unbound, their messages doubled or replayed."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import redis
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from fairlane_scheduler.dispatch.publisher import Publisher
from tests.faults.deployment import PATIENCE_S, to_broker
from tests.faults.kinds import ANY, WORKERS
from tests.faults.schedule import Timed
from tests.faults.stage import Stage, fault
from tests.support.rabbitmq import RabbitMQ

LOOK_S = 0.05
QUEUES, BINDINGS = "fairlane.lane.*", "_kombu.binding.*"
REPLAYED = 40
WITHOUT = "messages are in Redis: play it with --rabbitmq"


@fault("queues_deleted")
def delete_queues(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """Queues fill up while the workers are cut off for a moment, and then all of them are gone."""
    proxies = stage.deployment.proxies
    proxies.each([*WORKERS], lambda proxy: proxy.cut(forth=True, back=True))
    yield (ANY,)
    with suppress(RedisError):
        _delete(stage, QUEUES)
    proxies.each([*WORKERS], lambda proxy: proxy.mend())


@fault("bindings_deleted")
def delete_bindings(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """The broker's tables of queues are gone, again and again."""
    yield from _again_and_again(stage, lambda _: _delete(stage, BINDINGS))


def _delete(stage: Stage, pattern: str) -> None:
    with redis.Redis.from_url(stage.deployment.server.url, socket_timeout=PATIENCE_S) as server:
        for key in server.keys(pattern):
            server.delete(key)


@fault("messages_doubled")
def double(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """The message of each attempt that is in flight is published again, several times."""
    deployment = stage.deployment

    def publish_again(publisher: Publisher) -> None:
        for record in map(json.loads, deployment.redis.hvals(deployment.keys.leased)):
            ref = RunRef.parse(record["ref"])
            publisher.publish(Attempt(ref.run, ref.team, record["job"], record["number"], record["lane"]))
        publisher.flush()

    yield from _again_and_again(stage, publish_again)


def _again_and_again(stage: Stage, act: Callable[[Publisher], object]) -> Iterator[tuple[str, ...]]:
    over = threading.Event()

    def run() -> None:
        with closing(Publisher(stage.deployment.settings)) as publisher:
            while not over.wait(LOOK_S):
                with suppress(RedisError, OSError, OperationalError):
                    act(publisher)

    stage.beside(run)
    yield (ANY,)
    over.set()


@fault("messages_replayed")
def replay(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """Messages of attempts that were granted, are granted now, or never will be, come again."""
    yield (ANY,)
    workload = stage.workload

    def publish_old() -> None:
        with (
            suppress(RedisError, OSError, OperationalError),
            closing(Publisher(stage.deployment.settings)) as publisher,
        ):
            for name, letter in (("judged", "a"), ("bounded", "a"), ("serial", "c")):
                run = workload.watched[name].run
                for job in range(REPLAYED):
                    publisher.publish(Attempt(run.id, run.team, job, 1, workload.lane(letter)))
            publisher.flush()

    stage.beside(publish_old)


@fault("broker_kill")
def kill_broker(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """SIGKILL: messages that it has confirmed are on its disk."""
    broker = _broker(stage)
    broker.kill()
    yield (ANY,)
    broker.start()


@fault("broker_stop")
def stop_broker(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """SIGSTOP: its connections stay open, and say nothing."""
    broker = _broker(stage)
    broker.signal(signal.SIGSTOP)
    yield (ANY,)
    broker.signal(signal.SIGCONT)


@fault("broker_partition")
def cut_off_from_broker(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """Nothing passes between it and one process, or all; what was held is lost with its connections."""
    hit, proxies = stage.hit(timed), stage.deployment.proxies
    assert stage.deployment.broker is not None, WITHOUT
    ways = [to_broker(name) for name in hit]
    proxies.each(ways, lambda proxy: proxy.cut(forth=True, back=True))
    yield (ANY,)
    proxies.each(ways, lambda proxy: proxy.reset())
    proxies.each(ways, lambda proxy: proxy.mend())


def _broker(stage: Stage) -> RabbitMQ:
    assert stage.deployment.broker is not None, WITHOUT
    return stage.deployment.broker

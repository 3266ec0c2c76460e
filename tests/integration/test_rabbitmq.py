"""RabbitMQ as the broker: quorum queues for lanes, and a run that survives what happens to it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection, Queue

from fairlane.broker.app import IDLE_QUEUE, make_app, queue_of
from fairlane.cli.operate.broker_inspection import inspect_broker
from fairlane.config.settings import Settings
from fairlane.core.events import Event
from fairlane.model.job import Attempt
from fairlane.model.lane import queue_name
from fairlane_scheduler.dispatch.publisher import Publisher
from tests.support.cluster import all_succeeded, cluster, numbered
from tests.support.rabbitmq import RabbitMQ, rabbitmq
from tests.support.strict_lane import start_strict_run
from tests.support.wait import wait_until

# RabbitMQ takes its time to be installed, to start and to start again.
pytestmark = [pytest.mark.brokers, pytest.mark.timeout(400)]

JOBS = 300
FAR_MS = 1 << 42


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as running:
        yield running


@pytest.fixture
def publisher(server: RabbitMQ) -> Iterator[Publisher]:
    made = Publisher(settings_of(server.url))
    yield made
    made.close()


def settings_of(url: str) -> Settings:
    return Settings.model_validate({"celery": {"broker_url": url}})


def taken(server: RabbitMQ, lane: str) -> list[int]:
    """The jobs that lie on a lane's queue, which is emptied."""
    with Connection(server.url) as connection, connection.channel() as channel:
        queue, jobs = queue_of(lane)(channel), []
        queue.declare()
        while (message := queue.get(no_ack=True)) is not None:
            jobs.append(message.payload[1]["job"])
        return jobs


def send(publisher: Publisher, job: int, lane: str) -> bool:
    publisher.publish(Attempt("r1", "search", job, 1, lane))
    return publisher.flush()


def test_a_run_survives_a_dead_worker_and_two_restarts_of_the_broker(
    server: RabbitMQ, tmp_path: Path
) -> None:
    config = f'[celery]\nbroker_url = "{server.url}"\n'
    with cluster(tmp_path, config=config, slots=10) as deployment:
        deployment.begin()
        strict = start_strict_run(deployment, JOBS)
        strict.wait_for(JOBS // 5)
        deployment.process("worker-1").kill(signal.SIGKILL)
        strict.wait_for(2 * JOBS // 5)
        deployment.stack.restart("worker-1")
        server.kill()
        server.start()
        strict.wait_for(3 * JOBS // 5)
        server.stop()
        server.start()

        assert len(all_succeeded(strict.run, timeout=90.0)) == JOBS
        assert strict.served().rejected == 0
        # A job that has begun on a worker that was killed is all that is repeated.
        assert strict.served().admitted - JOBS <= 10
        deployment.wait_logged(Event.STORE_BACK, store="broker")
        assert [death.name for death in deployment.stack.poll()] == []
        queues = server.queues()
        ours = {name: kind for name, kind in queues.items() if name.startswith("fairlane.")}
        assert set(ours.values()) == {"quorum"}
        assert queue_name(f"sim:{strict.model}") in ours
        assert not [name for name in queues if name.startswith("celery_delayed")]


def test_workers_leave_the_queue_of_a_lane_that_is_forgotten_until_it_is_back(
    server: RabbitMQ, tmp_path: Path
) -> None:
    config = f'[celery]\nbroker_url = "{server.url}"\n'
    with cluster(tmp_path, config=config, slots=10) as deployment:
        lane = f"sim:{deployment.new_model()}"

        def consumers() -> int:
            return server.control("list_consumers", "queue_name").splitlines().count(queue_name(lane))

        def answers() -> int:
            run = deployment.client.submit(numbered(JOBS // 10), "{{ n }}", model=lane)
            return len(all_succeeded(run))

        assert answers() == JOBS // 10
        assert consumers() == len(deployment.beats())
        leader = deployment.leader()
        leader.stop()
        deployment.redis.hset(deployment.keys.leader, mapping={"until_ms": FAR_MS})
        epoch = int(deployment.redis.hget(deployment.keys.leader, "epoch") or 0)
        assert deployment.lanes.forget(lane, epoch, 0)
        wait_until(lambda: consumers() == 0)
        # The policy of docs/brokers.md, with a second in place of a week.
        policy = ("unused", r"^fairlane\.lane\.", '{"expires":1000}', "--apply-to", "queues")
        server.control("set_policy", *policy)
        wait_until(lambda: queue_name(lane) not in server.queues())
        server.control("clear_policy", "unused")
        deployment.redis.hset(deployment.keys.leader, mapping={"until_ms": 0})
        deployment.stack.restart(leader.name)
        assert answers() == JOBS // 10
        assert consumers() == len(deployment.beats())


def test_messages_lie_on_the_lanes_queue_in_order(server: RabbitMQ, publisher: Publisher) -> None:
    for job in range(5):
        assert send(publisher, job, "sim:order")
    assert taken(server, "sim:order") == [0, 1, 2, 3, 4]


def test_a_broker_that_has_gone_is_noticed_before_anything_is_sent(
    server: RabbitMQ, publisher: Publisher
) -> None:
    assert send(publisher, 1, "sim:gone")
    server.stop()
    wait_until(lambda: not publisher.connect())
    assert not send(publisher, 2, "sim:gone")
    server.start()
    wait_until(publisher.connect)
    assert publisher.flush()
    assert taken(server, "sim:gone") == [1, 2]


def test_a_node_that_answers_is_chosen_from_several(server: RabbitMQ) -> None:
    url = f"amqp://guest:guest@127.0.0.1:1//;{server.url}"
    publisher = Publisher(settings_of(url))
    assert publisher.connect()
    publisher.close()
    assert inspect_broker(settings_of(url)).problem is None


def test_a_queue_that_was_deleted_is_made_again(server: RabbitMQ, publisher: Publisher) -> None:
    assert send(publisher, 1, "sim:deleted")
    server.control("delete_queue", queue_name("sim:deleted"))

    send(publisher, 2, "sim:deleted")  # lost until its lease lapses; the broker says so
    wait_until(lambda: publisher.connect() and not publisher._declared)
    assert send(publisher, 3, "sim:deleted")

    assert taken(server, "sim:deleted") == [3]


def test_nothing_is_granted_while_the_broker_is_full(server: RabbitMQ, publisher: Publisher) -> None:
    assert send(publisher, 1, "sim:full")
    server.control("set_vm_memory_high_watermark", "0.0000001")
    try:
        send(publisher, 2, "sim:full")  # it tells those that send
        wait_until(lambda: not publisher.connect())
    finally:
        server.control("set_vm_memory_high_watermark", "0.4")
    wait_until(publisher.connect)
    assert taken(server, "sim:full") == [1, 2]


def test_the_doctor_checks_rabbitmq(server: RabbitMQ) -> None:
    seen = inspect_broker(settings_of(server.url))
    assert seen.problem is None
    assert seen.summary.startswith("RabbitMQ 3.") or seen.summary.startswith("RabbitMQ 4.")
    assert seen.summary.endswith("quorum queues")


def test_the_doctor_finds_a_queue_of_another_kind_and_a_user_without_rights(server: RabbitMQ) -> None:
    server.control("add_vhost", "old")
    server.control("set_permissions", "-p", "old", "guest", ".*", ".*", ".*")
    url = server.url.removesuffix("/") + "old"
    with Connection(url) as connection, connection.channel() as channel:
        Queue(IDLE_QUEUE, durable=True)(channel).declare()
    seen = inspect_broker(settings_of(url))
    assert seen.problem is not None
    assert "x-queue-type" in seen.problem
    assert "Delete that queue" in seen.remedy

    server.control("set_permissions", "-p", "old", "guest", "", "", "")
    seen = inspect_broker(settings_of(url))
    assert seen.problem is not None
    assert "configure, write and read" in seen.remedy
    assert "guest:guest" not in seen.problem


def test_certificates_are_checked(server: RabbitMQ) -> None:
    trusted = f"?ssl_ca_certs={server.ca}"
    assert inspect_broker(settings_of(server.tls_url + trusted)).problem is None
    unknown = inspect_broker(settings_of(server.tls_url)).problem
    assert unknown is not None
    assert "authority that is not known here" in unknown
    other = inspect_broker(settings_of(server.tls_url.replace("localhost", "127.0.0.1") + trusted)).problem
    assert other is not None
    assert "is for another host" in other
    app = make_app(settings_of(server.tls_url + trusted), "test")
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, timeout=5.0)

"""URLs of several servers: what they name, what is refused, and what Celery gets."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from pydantic import ValidationError

from fairlane.broker.app import lane_queue, make_app
from fairlane.broker.transport import transport_of
from fairlane.config.sections import SchedulerSettings
from fairlane.config.settings import Settings
from fairlane.config.topology import topology_of
from fairlane.core.errors import ConfigurationError
from fairlane.core.redaction import mask_text
from fairlane.store.connection.connect import open_redis, without_password

SENTINELS = "redis+sentinel://user:p%40ss@one:26380,two,[::1]:26381/mymaster/3?sentinel_password=guard"


def announced(redis_url: str = "redis://one", broker_url: str | None = None) -> Settings:
    celery = {} if broker_url is None else {"broker_url": broker_url}
    return Settings.model_validate({"redis": {"url": redis_url}, "celery": celery})


@pytest.mark.parametrize("url", ["redis://one:1/0", "rediss://one", "unix:///tmp/r.sock", "amqp://one//"])
def test_one_server_is_no_topology(url: str) -> None:
    assert topology_of(url) is None


def test_sentinels_are_named_with_their_service_and_database() -> None:
    found = topology_of(SENTINELS)
    assert found is not None
    assert found.nodes == (("one", 26380), ("two", 26379), ("::1", 26381))
    assert (found.service, found.database) == ("mymaster", 3)
    assert found.server_url(("two", 1)) == "redis://user:p%40ss@two:1/3"
    assert found.server_url(("::1", 1)) == "redis://user:p%40ss@[::1]:1/3"
    assert dict(found.sentinel) == {"password": "guard"}


def test_a_cluster_is_named_by_some_of_its_nodes() -> None:
    found = topology_of("rediss+cluster://one,two:7001?ssl_ca_certs=/ca.pem")
    assert found is not None
    assert (found.nodes, found.service) == ((("one", 6379), ("two", 7001)), None)
    assert found.server_url(("two", 7001)) == "rediss://two:7001/0?ssl_ca_certs=%2Fca.pem"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+sentinel://one,two", "name under which Sentinels know"),
        ("redis+sentinel://one/mymaster/first", "a database is a number"),
        ("redis+sentinel://one,,two/mymaster", "separated by commas"),
        ("redis+cluster://one/1", "one database alone"),
        ("rediss+cluster://one?ssl_cert_reqs=none", "certificates are always checked"),
    ],
)
def test_a_url_that_names_too_little_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        announced(url)


@pytest.mark.parametrize(
    "url",
    ["redis://one:1/0", "rediss://one", "unix:///tmp/r.sock", SENTINELS, "rediss+sentinel://one/service"],
)
def test_celery_waits_for_no_server_on_redis_for_ever(url: str) -> None:
    options = transport_of(announced(url)).options
    assert 0 < options["socket_timeout"] < SchedulerSettings().leader_lease_seconds
    assert 0 < options["socket_connect_timeout"] <= options["socket_timeout"]
    assert 0 < options["health_check_interval"] <= SchedulerSettings().worker_timeout_seconds


def test_celery_gets_each_sentinel_and_the_service() -> None:
    transport = transport_of(announced(SENTINELS))
    assert transport.url == (
        "sentinel://user:p%40ss@one:26380/3;sentinel://user:p%40ss@two:26379/3;"
        "sentinel://user:p%40ss@[::1]:26381/3"
    )
    assert transport.options["master_name"] == "mymaster"
    assert transport.options["ack_emulation"] is False
    assert transport.options["sentinel_kwargs"]["password"] == "guard"


def test_sentinels_and_their_service_are_reached_by_the_same_tls() -> None:
    transport = transport_of(announced("rediss+sentinel://one/mymaster?ssl_ca_certs=/ca.pem"))
    checked = {"ssl_ca_certs": "/ca.pem", "ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    assert transport.url == "sentinel://one:26379/0"
    assert transport.tls == checked
    assert checked.items() <= transport.options["sentinel_kwargs"].items()


def test_queues_have_to_be_elsewhere_where_the_state_is_on_a_cluster() -> None:
    with pytest.raises(ConfigurationError, match=r"celery\.broker_url.*cluster.*Name a broker"):
        make_app(announced("redis+cluster://one"), "test")
    assert transport_of(announced("redis+cluster://one", "redis://two/0")).url == "redis://two/0"


@pytest.mark.parametrize(
    ("url", "problem"),
    [("redis+cluster://one", "cannot be on a cluster"), ("sentinel://one:26379", "redis\\+sentinel://")],
)
def test_a_broker_that_celery_could_not_use_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        announced(broker_url=url)


@pytest.mark.parametrize(
    ("url", "named"),
    [("amqps://u:p@rabbit:5671/fairlane?ssl_ca_certs=/ca.pem", "rabbit"), ("amqps://a//;amqps://b//", None)],
)
def test_certificates_of_rabbitmq_are_checked(url: str, named: str | None) -> None:
    transport = transport_of(announced(broker_url=url))
    assert "ssl_" not in transport.url
    assert transport.tls is not None
    assert transport.tls["cert_reqs"] is ssl.CERT_REQUIRED
    assert transport.tls["server_hostname"] == named


def test_queues_of_lanes_are_quorum_queues_where_there_are_such() -> None:
    assert lane_queue("fairlane.lane.x").queue_arguments == {"x-queue-type": "quorum"}
    app: Any = make_app(announced(broker_url="amqp://rabbit//"), "test")
    assert app.conf.worker_detect_quorum_queues
    assert app.conf.broker_transport_options == {}


def test_no_password_is_shown() -> None:
    for shown in (without_password(SENTINELS), mask_text(SENTINELS)):
        assert "p%40ss" not in shown
        assert "guard" not in shown
        assert "two" in shown or shown == mask_text(SENTINELS)


def test_a_cluster_needs_to_know_whose_keys_are_meant() -> None:
    with pytest.raises(ValueError, match="deployment"):
        open_redis("redis+cluster://one")


def test_an_option_of_the_caller_replaces_the_usual_one_also_behind_sentinels() -> None:
    for url in ("redis://one", "redis+sentinel://one/mymaster"):
        with open_redis(url, deployment="main", socket_timeout=0.5) as client:
            assert client.connection_pool.connection_kwargs["socket_timeout"] == 0.5

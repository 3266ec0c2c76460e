"""Every role reaches Redis by TLS and checks its certificate; one that is not right is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
from kombu.exceptions import OperationalError
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from fairlane import Client
from fairlane.broker.app import make_app
from fairlane.config.environment import child_environment
from fairlane.config.settings import Settings
from fairlane.core.errors import StoreUnavailable
from fairlane.embedded.guard import Guard
from fairlane.embedded.ports import LOOPBACK, preferred_or_free
from fairlane.embedded.processes import Process
from fairlane.embedded.server import EmbeddedRedis
from fairlane.local.plan import FAIRLANE
from fairlane.model.run import RunRef
from fairlane.store.connection.connect import open_redis, require, require_trust
from fairlane.store.keys import Keys
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.tls import Certificates, Program, program_with_tls, tls_redis
from tests.support.wait import wait_until

UNKNOWN = ("signed by an authority that is not known here", "?ssl_ca_certs=/path/to/ca.pem")
EXPIRED = ("certificate has expired", "Renew it on the server")
OTHER_HOST = ("is for another host", "Write a name in the URL that the certificate has")


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest) -> Program:
    cache = request.config.cache
    assert cache is not None
    return program_with_tls(cache.mkdir("redis-with-tls"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@dataclass(frozen=True, slots=True)
class Faulty:
    """A server that must be refused, its URL, and the error that is shown."""

    url: str
    announced: tuple[str, str]


@contextmanager
def faulty(fault: str, program: Program, certificates: Certificates, folder: Path) -> Iterator[Faulty]:
    ca, known = certificates.ca, {"ssl_ca_certs": certificates.ca}
    made = {
        "unknown": (certificates.issue("unknown"), {}, UNKNOWN),
        "expired": (certificates.issue("expired", expired=True), known, EXPIRED),
        "host": (certificates.issue("host", "redis.example"), known, OTHER_HOST),
    }
    certificate, options, announced = made[fault]
    with tls_redis(program, folder, certificate, ca) as server:
        yield Faulty(server.url(**options), announced)


def fairlane(url: str, *arguments: str, team: str = "search") -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which has that URL alone."""
    announced = child_environment({"FAIRLANE_REDIS__URL": url, "FAIRLANE_TEAM": team})
    return subprocess.run(
        [*FAIRLANE, *arguments], env=announced, capture_output=True, text=True, timeout=60, check=False
    )


def shows_only(ended: subprocess.CompletedProcess[str], announced: tuple[str, str], *, code: int = 1) -> None:
    """One line of complaint that has the problem and its remedy, and nothing else. Roles end with 2."""
    assert (ended.returncode, ended.stdout) == (code, "")
    (line,) = ended.stderr.splitlines()
    assert all(words in line for words in announced), line


@pytest.fixture(scope="module")
def secure(
    program: Program, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A scheduler and a worker whose state and broker are one server that speaks TLS alone."""
    folder = tmp_path_factory.mktemp("secure")
    with tls_redis(program, folder / "redis", certificates.issue("good"), certificates.ca) as server:
        url = server.url(ssl_ca_certs=certificates.ca)
        with cluster(folder, redis_url=url, workers=1) as deployment:
            yield deployment


def test_scheduler_worker_broker_and_client_work_over_tls(secure: Cluster) -> None:
    run = secure.client.submit(numbered(20), "question {{ n }}", model=f"sim:{secure.new_model()}")
    assert len(all_succeeded(run)) == 20


def test_the_command_line_and_the_doctor_work_over_tls(secure: Cluster) -> None:
    url = secure.stack.redis_url
    run = secure.client.submit(numbered(3), "question {{ n }}", model=f"sim:{secure.new_model()}")
    all_succeeded(run)
    status = fairlane(url, "status", run.id, "--json")
    assert json.loads(status.stdout)["state"] == "completed", status.stderr
    examined = fairlane(url, "doctor", "--json")
    (redis,) = [found for found in json.loads(examined.stdout) if found["check"] == "redis"]
    assert redis["grade"] == "ok"


def test_flower_works_over_tls(secure: Cluster) -> None:
    port, guard = next(preferred_or_free(None)), Guard()
    env = {**secure.stack.environment, "FLOWER_UNAUTHENTICATED_API": "true"}
    log = secure.directory / "data" / "logs" / "flower.log"
    flower = Process("flower", secure.stack.plan.flower_command(port), log=log, guard=guard, env=env)
    flower.start()
    try:
        wait_until(
            lambda: "worker-1" in fetched(f"http://{LOOPBACK}:{port}/api/workers?refresh=1"), timeout=40
        )
        assert "fairlane.idle" in fetched(f"http://{LOOPBACK}:{port}/api/queues/length")
    finally:
        flower.ask_to_stop()
        if not flower.join(10.0):
            flower.kill()
            flower.join(10.0)
        guard.close()
    assert "insecure" not in log.read_text()


def server_version(deployment: Cluster) -> tuple[int, ...]:
    text = deployment.redis.info("server")["redis_version"]
    return tuple(int(part) for part in text.split("."))


def fetched(url: str) -> str:
    """What a page says; nothing where there is none yet."""
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310 - on the loopback address
            return str(answer.read().decode())
    except OSError:
        return ""


def test_a_team_has_its_user_over_tls_and_no_other_teams_keys(secure: Cluster) -> None:
    printed = fairlane(secure.stack.redis_url, "teams", "add", "search", "--print").stdout
    made = fairlane(secure.stack.redis_url, "teams", "add", "search")
    url = made.stdout.strip()
    assert made.returncode == 0, made.stderr
    assert url.startswith("rediss://fairlane.main.search:")
    rules = {word for word in printed.split() if word.startswith("+")}
    assert ("+client|setinfo" in rules) == (server_version(secure) >= (7, 2)), "what the server does not know"
    with Client(url=url, team="search") as client:
        run = client.submit(numbered(5), "question {{ n }}", model=f"sim:{secure.new_model()}")
        assert len(all_succeeded(run)) == 5
    with open_redis(url) as member, pytest.raises(NoPermissionError):
        member.get(Keys("main").spec(RunRef("ads", "r1")))
    with pytest.raises(StoreUnavailable, match="refuses the user or the password") as refused:
        Client(url=url.replace("search:", "search:x"), team="search")
    assert url.rpartition(":")[0] not in str(refused.value)


@pytest.mark.parametrize("fault", ["unknown", "expired", "host"])
def test_a_certificate_that_is_not_right_is_refused_in_one_line(
    program: Program, certificates: Certificates, tmp_path: Path, fault: str
) -> None:
    with faulty(fault, program, certificates, tmp_path) as server:
        shows_only(fairlane(server.url, "lanes"), server.announced)
        with pytest.raises(StoreUnavailable) as refused:
            Client(url=server.url)
        assert all(words in str(refused.value) for words in server.announced)
        broker = make_app(Settings.model_validate({"redis": {"url": server.url}}), "test").connection()
        with broker, pytest.raises(OperationalError, match="CERTIFICATE_VERIFY_FAILED"):
            broker.ensure_connection(max_retries=0, timeout=5)


@pytest.mark.parametrize("role", ["scheduler", "worker", "flower"])
def test_no_role_starts_where_the_certificate_is_refused(
    program: Program, certificates: Certificates, tmp_path: Path, role: str
) -> None:
    with faulty("unknown", program, certificates, tmp_path) as server:
        shows_only(fairlane(server.url, role), server.announced, code=2)


def test_a_broker_of_its_own_is_checked_as_well(
    program: Program, certificates: Certificates, tmp_path: Path
) -> None:
    with faulty("host", program, certificates, tmp_path) as server:
        announced = child_environment({"FAIRLANE_CELERY__BROKER_URL": server.url})
        ended = subprocess.run(
            [*FAIRLANE, "scheduler"], env=announced, capture_output=True, text=True, timeout=60, check=False
        )
        shows_only(ended, server.announced, code=2)


def test_a_server_that_wants_certificates_of_clients_says_so_and_takes_them(
    program: Program, certificates: Certificates, tmp_path: Path
) -> None:
    ca, (certificate, key) = certificates.ca, certificates.issue("client", "a-client")
    with tls_redis(program, tmp_path, certificates.issue("good"), ca, known_clients=True) as server:
        with pytest.raises(StoreUnavailable, match=r"wants a certificate of the client's.*ssl_certfile="):
            require_trust(server.url(ssl_ca_certs=ca))
        require_trust(server.url(ssl_ca_certs=ca, ssl_certfile=certificate, ssl_keyfile=key))


def test_a_server_that_does_not_speak_tls_is_distinguished(
    program: Program, certificates: Certificates, tmp_path: Path
) -> None:
    with tls_redis(program, tmp_path, certificates.issue("good"), certificates.ca) as server:
        plain = server.url().replace("rediss://", "redis://")
        with pytest.raises(StoreUnavailable, match="If that server wants TLS, write rediss://"):
            Client(url=plain)
        for option, words in (("missing", "No such file"), ("redis.conf", "holds no certificate")):
            with pytest.raises(StoreUnavailable, match=words):
                Client(url=server.url(ssl_ca_certs=tmp_path / option))


def test_a_server_without_tls_is_distinguished(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as plain:
        url = plain.url.replace("redis://", "rediss://")
        impatient = Redis.from_url(url, socket_timeout=0.2, retry=Retry(NoBackoff(), 0))
        with (
            impatient,
            pytest.raises(StoreUnavailable, match="If it speaks no TLS at that port, write redis://"),
        ):
            require(impatient, url)

"""Certificates are checked wherever Redis is reached by TLS, and no URL can say otherwise."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from threading import Thread

import pytest
from celery import Celery
from pydantic import ValidationError
from redis.connection import SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from fairlane.broker.app import make_app
from fairlane.config.settings import Settings
from fairlane.store.connection.connect import open_redis
from fairlane.store.connection.tls_errors import in_words
from fairlane_workers.engine import _open_redis
from tests.support.tls import Certificates

URL = "rediss://u:p@redis.invalid:6380/0?ssl_ca_certs=/etc/ca.pem"


def checked(connection: object) -> tuple[object, object, object]:
    return tuple(getattr(connection, name) for name in ("cert_reqs", "check_hostname", "ca_certs"))  # type: ignore[return-value]


def test_clients_and_the_scheduler_check_certificates() -> None:
    pool = open_redis(URL).connection_pool
    connection = pool.connection_class(**pool.connection_kwargs)
    assert isinstance(connection, SSLConnection)
    assert checked(connection) == (ssl.CERT_REQUIRED, True, "/etc/ca.pem")


def test_workers_check_certificates() -> None:
    pool = _open_redis(Settings.model_validate({"redis": {"url": URL}})).connection_pool
    connection = pool.connection_class(**pool.connection_kwargs)
    context = connection.ssl_context
    assert (context.cert_reqs, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.ca_certs == "/etc/ca.pem"


@pytest.mark.parametrize("options", ["", "?ssl_ca_certs=/etc/ca.pem"])
def test_the_broker_checks_certificates_whatever_options_its_url_has(options: str) -> None:
    url = f"rediss://u:p@redis.invalid:6380/3{options}"
    app: Celery = make_app(Settings.model_validate({"redis": {"url": url}}), "test")
    connection = app.connection_for_write()
    made = SSLConnection(host="redis.invalid", **dict(connection.ssl or {}))
    assert checked(made) == (ssl.CERT_REQUIRED, True, "/etc/ca.pem" if "ca_certs" in options else None)
    where = (connection.hostname, connection.port, connection.virtual_host, connection.userid)
    assert where == ("redis.invalid", 6380, "3", "u")


def test_a_broker_without_tls_is_left_alone() -> None:
    app: Celery = make_app(Settings.model_validate({"redis": {"url": "redis://h:1/2"}}), "test")
    assert (app.conf.broker_url, app.conf.broker_use_ssl) == ("redis://h:1/2", False)


def as_a_client_raises(cause: OSError) -> None:
    """An error of redis-py's own, which has the cause behind it."""
    try:
        raise cause
    except OSError:
        raise RedisConnectionError("Error 1 connecting to h:1")  # noqa: B904


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (10, "has expired"),
        (9, "not valid yet"),
        (62, "another host"),
        (64, "another host"),
        (20, "not known"),
    ],
)
def test_a_refused_certificate_is_reported_in_words_however_deep_it_lies(code: int, words: str) -> None:
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_code, cause.verify_message = code, "as OpenSSL says"
    with pytest.raises(RedisConnectionError) as raised:
        as_a_client_raises(cause)
    assert words in in_words(raised.value)


def test_an_error_that_is_not_of_tls_is_reported_as_it_is() -> None:
    assert in_words(RedisConnectionError("Error 111 connecting to h:1. refused")) == (
        "Error 111 connecting to h:1. refused"
    )


@pytest.mark.parametrize(
    "query",
    ["ssl_cert_reqs=none", "ssl_cert_reqs=optional", "ssl_cert_reqs=CERT_NONE", "ssl_check_hostname=false"],
)
@pytest.mark.parametrize("place", ["redis.url", "celery.broker_url"])
def test_a_url_that_says_not_to_check_is_refused(place: str, query: str) -> None:
    section, name = place.split(".")
    with pytest.raises(ValidationError, match="certificates are always checked"):
        Settings.model_validate({section: {name: f"rediss://h/0?{query}"}})


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def answering(certificate: tuple[Path, Path], hellos: int) -> int:
    """The port of a TLS server that answers PING alone, to so many connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)

    def serve() -> None:
        with listener:
            for _ in range(hellos):
                plain, _ = listener.accept()
                try:
                    with context.wrap_socket(plain, server_side=True) as secure:
                        while data := secure.recv(4096):
                            secure.sendall(
                                b"+PONG\r\n" if b"PING" in data else b"-ERR unknown\r\n" * data.count(b"*")
                            )
                except OSError:
                    continue

    Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


def test_a_certificate_of_an_unknown_authority_or_of_another_host_is_refused(made: Certificates) -> None:
    port = answering(made.issue("server"), 2)
    for url in (f"rediss://localhost:{port}/0", f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={made.ca}"):
        with open_redis(url, retries=0) as client, pytest.raises(Exception, match=r"(?i)certificate"):
            client.ping()


def test_a_certificate_of_the_named_authority_is_taken(made: Certificates) -> None:
    port = answering(made.issue("server"), 1)
    url = f"rediss://localhost:{port}/0?ssl_ca_certs={made.ca}"
    with open_redis(url, retries=0) as client, pytest.raises(ResponseError, match="unknown"):
        client.get("key")  # the server is no Redis, but its answer arrives, with any version of redis-py

"""Certificates are checked wherever Redis is reached by TLS, and no URL can say otherwise."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from threading import Thread

import pytest
from celery import Celery
from pydantic import ValidationError
from redis.connection import SSLConnection
from redis.exceptions import ResponseError

from fairlane.broker import make_app
from fairlane.settings import Settings
from fairlane.store.connect import open_redis
from fairlane_workers.engine import _open_redis

URL = "rediss://u:p@redis.invalid:6380/0?ssl_ca_certs=/etc/ca.pem"


def checked(connection: object) -> tuple[object, object, object]:
    return tuple(getattr(connection, name) for name in ("cert_reqs", "check_hostname", "ca_certs"))  # type: ignore[return-value]


def test_clients_and_the_scheduler_check_certificates() -> None:
    pool = open_redis(URL).connection_pool
    connection = pool.connection_class(**pool.connection_kwargs)
    assert isinstance(connection, SSLConnection)
    assert checked(connection) == (ssl.CERT_REQUIRED, True, "/etc/ca.pem")


def test_workers_check_certificates() -> None:
    pool = _open_redis(URL).connection_pool
    connection = pool.connection_class(**pool.connection_kwargs)
    context = connection.ssl_context
    assert (context.cert_reqs, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.ca_certs == "/etc/ca.pem"


def test_the_broker_checks_certificates() -> None:
    app: Celery = make_app(Settings.model_validate({"redis": {"url": URL}}), "test")
    connection = app.connection_for_write()
    options = dict(connection.ssl or {})
    made = SSLConnection(host="redis.invalid", **options)
    assert checked(made) == (ssl.CERT_REQUIRED, True, "/etc/ca.pem")


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
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that is its own authority, and its key beside it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate")
    made = tmp_path / "cert.pem"
    command = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += [
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        str(tmp_path / "key.pem"),
        "-out",
        str(made),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return made


def answering(certificate: Path, hellos: int) -> int:
    """The port of a TLS server that answers PING alone, to so many connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
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


def test_a_certificate_of_an_unknown_authority_or_of_another_host_is_refused(certificate: Path) -> None:
    port = answering(certificate, 2)
    for url in (f"rediss://localhost:{port}/0", f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}"):
        with open_redis(url, retries=0) as client, pytest.raises(Exception, match=r"(?i)certificate"):
            client.ping()


def test_a_certificate_of_the_named_authority_is_taken(certificate: Path) -> None:
    port = answering(certificate, 1)
    url = f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}"
    with open_redis(url, retries=0) as client, pytest.raises(ResponseError, match="unknown"):
        client.ping()  # what answers is no Redis, but it has been heard

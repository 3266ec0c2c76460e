"""Which certificates a transport trusts, and how it reports that it rejects one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from fairlane_workers.transport import Transport, TransportError, UnusableSettingError
from tests.support.scripted_server import http, scripted_server
from tests.support.tls import Certificates
from tests.support.transport_calls import body_of, post, serving, transport_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def server_of(certificate: tuple[Path, Path], **options: Any) -> AsyncIterator[str]:
    """The URL of a server that answers one call."""
    async with scripted_server([[http(200, b"{}")]], serving(certificate, **options)) as scripted:
        yield scripted.url


def call(certificate: tuple[Path, Path], clients_of: Path | None = None, **settings: Any) -> bytes:
    async def scenario() -> bytes:
        async with (
            server_of(certificate, clients_of=clients_of) as url,
            transport_of(**settings) as transport,
        ):
            return await body_of(await post(transport, url))

    return asyncio.run(scenario())


def test_an_authority_named_is_trusted(made: Certificates) -> None:
    assert call(made.issue("good"), ca_file=made.ca) == b"{}"


def test_an_authority_nobody_named_is_not(made: Certificates) -> None:
    with pytest.raises(TransportError, match=r"localhost:\d+: .*(self-signed|unable to get local issuer)"):
        call(made.issue("good"))


def test_an_authority_of_the_environment_is_trusted_beside_one_named(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    assert call(made.issue("good"), ca_file=tmp_path / "other.pem") == b"{}"


def test_an_authority_of_the_environment_that_is_not_there_fails_the_call(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    with pytest.raises(TransportError, match=r"SSL_CERT_FILE .*cannot be read"):
        call(made.issue("good"))


def test_an_expired_certificate_is_refused_and_called_so(made: Certificates) -> None:
    with pytest.raises(TransportError, match="certificate has expired"):
        call(made.issue("old", expired=True), ca_file=made.ca)


def test_a_certificate_for_another_host_is_refused_and_called_so(made: Certificates) -> None:
    with pytest.raises(TransportError, match="Hostname mismatch"):
        call(made.issue("other", "elsewhere.example"), ca_file=made.ca)


def test_a_client_certificate_is_shown(made: Certificates, tmp_path: Path) -> None:
    certificate, key = made.issue("client")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    good = made.issue("good")
    assert call(good, clients_of=made.ca, ca_file=made.ca, client_certificate=both) == b"{}"
    with pytest.raises(TransportError):
        call(good, clients_of=made.ca, ca_file=made.ca)


@pytest.mark.parametrize("renewed", ["ca_file", "client_certificate"])
def test_files_that_change_hold_for_connections_to_come(
    renewed: str, made: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()

    def shown(folder: Path) -> dict[str, bytes]:
        maker = made if folder == tmp_path else Certificates(folder)
        certificate, key = maker.issue("client")
        return {
            "ca_file": maker.ca.read_bytes(),
            "client_certificate": certificate.read_bytes() + key.read_bytes(),
        }

    good, other = shown(tmp_path), shown(tmp_path / "other")
    files = {name: tmp_path / f"{name}.pem" for name in good}
    for name, file in files.items():
        file.write_bytes((other if name == renewed else good)[name])

    async def scenario() -> bytes:
        script, tls = [[http(200, b"{}")]] * 3, serving(made.issue("good"), clients_of=made.ca)
        async with scripted_server(script, tls) as scripted, transport_of(**files) as transport:
            with pytest.raises(TransportError):
                await body_of(await post(transport, scripted.url))
            for content in (good[renewed], good[renewed][:99]):
                files[renewed].write_bytes(content)
                answer = await body_of(await post(transport, scripted.url, connection="close"))
            return answer

    assert asyncio.run(scenario()) == b"{}"


def test_equal_refusals_have_equal_texts(made: Certificates) -> None:
    async def scenario() -> set[str]:
        texts = set()
        async with server_of(made.issue("good")) as url:
            for _ in range(2):
                async with transport_of() as transport:
                    with pytest.raises(TransportError) as caught:
                        await post(transport, url)
                    texts.add(str(caught.value))
        return texts

    assert len(asyncio.run(scenario())) == 1


# Files are tried when the transport is made


@pytest.mark.parametrize("field", ["ca_file", "client_certificate"])
def test_a_file_that_is_not_there_is_reported_before_the_first_call(field: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableSettingError, match="cannot be read: No such file") as caught:
        Transport(**{field: tmp_path / "missing.pem"})
    assert (caught.value.field, caught.value.value) == (field, str(tmp_path / "missing.pem"))


@pytest.mark.parametrize("field", ["ca_file", "client_certificate"])
@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_a_file_without_a_certificate_is_reported_before_the_first_call(
    field: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "odd.pem"
    file.write_text(text)
    with pytest.raises(UnusableSettingError, match="holds no certificate"):
        Transport(**{field: file})


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    made = trustme.CA().issue_cert("localhost")
    key = load_pem_private_key(made.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    file = tmp_path / "client.pem"
    file.write_bytes(made.cert_chain_pems[0].bytes() + key)
    with pytest.raises(UnusableSettingError, match="encrypted"):
        Transport(client_certificate=file)

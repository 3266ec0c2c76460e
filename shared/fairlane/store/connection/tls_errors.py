"""TLS to Redis: certificates are always checked, and an error says how to fix it."""

import errno
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redis.exceptions import TimeoutError as RedisTimeoutError

from fairlane.core.errors import causes_of
from fairlane.store.connection.misfits import misfit_of
from fairlane.store.connection.server_states import Refusal, refusing_state

HEARD_S = 1.0  # wait for a TLS alert, which comes within a round trip

_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

# Verification results of OpenSSL, x509_vfy.h.
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_OTHER_HOST = (62, 64)

# OpenSSL's names of other failures; they depend on its version and on that of TLS.
_NO_PEM = ("NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE", "PEM_LIB")
_CLIENT_UNKNOWN = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNSUPPORTED_PROTOCOL")


def options_of(url: str) -> dict[str, Any]:
    """Options of a Redis client besides its URL. It also checks the host name, whatever its default."""
    return {"ssl_check_hostname": True} if url.startswith("rediss://") else {}


def refusal_of(error: BaseException, url: str = "") -> Refusal | None:
    """What is wrong with a connection's TLS, or with its files; ``None`` for any other error."""
    for cause in causes_of(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _certificate(cause)
        if isinstance(cause, ssl.SSLError):
            return _handshake(cause, url)
        if isinstance(cause, OSError) and cause.errno in (errno.ENOENT, errno.EACCES, errno.EISDIR):
            return _file(cause, url)
    return None


def plaintext_mismatch(error: BaseException, url: str) -> Refusal | None:
    """The error of a first connection on which only one side uses TLS; ``None`` for any other error."""
    if isinstance(error, RedisTimeoutError) and url.startswith("rediss://"):
        remedy = "If it speaks no TLS at that port, write redis:// in the URL, or the port where it does"
        return Refusal("the server did not answer to TLS in time", remedy)
    if not url.startswith("redis://") or not any(isinstance(each, OSError) for each in causes_of(error)):
        return None
    if "reset by peer" not in str(error) and "closed by server" not in str(error):
        return None
    remedy = "If that server wants TLS, write rediss:// in the URL"
    return Refusal("the server ended the connection at the first word", remedy)


def in_words(error: BaseException) -> str:
    """An error of Redis, for a log line."""
    refused = refusing_state(error) or misfit_of(error) or refusal_of(error)
    return str(error if refused is None else refused)


def _certificate(error: ssl.SSLCertVerificationError) -> Refusal:
    code, said = error.verify_code, error.verify_message.rstrip(".")
    if code in _UNKNOWN_AUTHORITY:
        problem = f"the server's certificate is signed by an authority that is not known here ({said})"
        return Refusal(problem, "Name the authority's certificate in the URL: ?ssl_ca_certs=/path/to/ca.pem")
    if code in _OTHER_HOST:
        problem = f"the server's certificate is for another host ({said})"
        remedy = "Write a name in the URL that the certificate has, or give the server one that has this name"
        return Refusal(problem, remedy)
    if code == _EXPIRED:
        remedy = "Renew it on the server, or set this machine's clock right"
        return Refusal("the server's certificate has expired", remedy)
    if code == _NOT_YET_VALID:
        return Refusal("the server's certificate is not valid yet", "Set this machine's clock right")
    return Refusal(f"the server's certificate is refused ({said})", "Give the server a valid one")


def _handshake(error: ssl.SSLError, url: str) -> Refusal | None:
    if error.reason in _NO_PEM:
        files = [f"{name}={path}" for name, path in _named(url)]
        named = ", ".join(files) or "the file of ssl_ca_certs, ssl_certfile or ssl_keyfile"
        return Refusal(f"{named} holds no certificate or key", "Name files in PEM format")
    if error.reason in _CLIENT_UNKNOWN:
        remedy = "Name it in the URL: ?ssl_certfile=/path/to/client.pem&ssl_keyfile=/path/to/client.key"
        return Refusal("the server wants a certificate of the client's, too", remedy)
    if error.reason not in _NO_TLS:
        return None
    remedy = "If it speaks no TLS at that port, write redis:// in the URL, or the port where it does"
    return Refusal(f"the server answered otherwise than TLS does ({error.reason})", remedy)


def _file(error: OSError, url: str) -> Refusal | None:
    missing = [f"{name}={path}" for name, path in _named(url) if not Path(path).is_file()]
    if not missing:
        return None
    return Refusal(
        f"{', '.join(missing)}: {error.strerror}", "Name files in the URL that are there and readable"
    )


def _named(url: str) -> list[tuple[str, str]]:
    query = parse_qs(urlsplit(url).query)
    return [(name, query[name][-1]) for name in _FILES if name in query]


def tls_alert(url: str) -> ssl.SSLError | None:
    """The alert with which the server of a ``rediss://`` URL rejects a silent client, if it does.

    In TLS 1.3 a server may reject a client after the client has finished the handshake. If the client has
    sent something by then, the server resets the connection, and its alert may be lost. A client that sends
    nothing after the handshake still receives the alert.
    """
    parts = urlsplit(url)
    if parts.scheme != "rediss" or parts.hostname is None:
        return None
    named = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    try:
        context = ssl.create_default_context(cafile=named.get("ssl_ca_certs"))
        if "ssl_certfile" in named:
            context.load_cert_chain(named["ssl_certfile"], named.get("ssl_keyfile"))
        address = (parts.hostname, parts.port or 6379)
        with (
            socket.create_connection(address, HEARD_S) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname) as secure,
        ):
            secure.recv(1)
    except ssl.SSLError as alert:
        return alert
    except OSError:  # no alert within HEARD_S, or no server
        pass
    return None

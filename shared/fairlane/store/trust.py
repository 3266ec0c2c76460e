"""TLS on the way to Redis: certificates are always checked, and a refusal says what mends it."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from redis.exceptions import TimeoutError as RedisTimeoutError

_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

# Verification results of OpenSSL, x509_vfy.h.
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_OTHER_HOST = (62, 64)

# What OpenSSL calls other failures; which of several depends on its version and on that of TLS.
_NO_PEM = ("NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE", "PEM_LIB")
_CLIENT_UNKNOWN = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNSUPPORTED_PROTOCOL")


class Refusal(NamedTuple):
    """Why no connection was made, and what is to be done about it."""

    problem: str
    remedy: str


def options_of(url: str) -> dict[str, Any]:
    """What a Redis client is told beside a URL: to check the host name too, whatever its default is."""
    return {"ssl_check_hostname": True} if url.startswith("rediss://") else {}


def refusal_of(error: BaseException, url: str = "") -> Refusal | None:
    """What was wrong with a connection's TLS, or with its files; ``None`` where it was something else."""
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _certificate(cause)
        if isinstance(cause, ssl.SSLError):
            return _handshake(cause, url)
        if isinstance(cause, OSError) and cause.errno in (errno.ENOENT, errno.EACCES, errno.EISDIR):
            return _file(cause, url)
    return None


def first_word_refused(error: BaseException, url: str) -> Refusal | None:
    """What a first connection suffers where one side speaks TLS and the other does not."""
    if isinstance(error, RedisTimeoutError) and url.startswith("rediss://"):
        remedy = "If it speaks no TLS at that port, write redis:// in the URL, or the port where it does"
        return Refusal("the server did not answer to TLS in time", remedy)
    if not url.startswith("redis://") or not any(isinstance(each, OSError) for each in _chain(error)):
        return None
    if "reset by peer" not in str(error) and "closed by server" not in str(error):
        return None
    remedy = "If that server wants TLS, write rediss:// in the URL"
    return Refusal("the server ended the connection at the first word", remedy)


def in_words(error: BaseException) -> str:
    """An error of Redis as a log line tells it."""
    refused = refusal_of(error)
    return str(error) if refused is None else f"{refused.problem}. {refused.remedy}."


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
        named = ", ".join(_files(url)) or "the file of ssl_ca_certs, ssl_certfile or ssl_keyfile"
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


def _files(url: str) -> list[str]:
    return [f"{name}={path}" for name, path in _named(url)]


def _named(url: str) -> list[tuple[str, str]]:
    query = parse_qs(urlsplit(url).query)
    return [(name, query[name][-1]) for name in _FILES if name in query]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__

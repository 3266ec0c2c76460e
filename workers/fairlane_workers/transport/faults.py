"""Names the faults of a network exchange, so that equal faults have equal texts."""

import errno
import re
import socket

import aiohttp
from aiohttp.http_exceptions import ContentLengthError, HttpProcessingError, TransferEncodingError

from fairlane.core.errors import causes_of

SHORTAGE = "the worker's machine is short of files, memory, threads or ports: "
"""What precedes the error of an attempt that ends so."""

NO_HTTP = "the server's reply is no valid HTTP: "

_SHOWN = 60  # characters of a line that is no HTTP
_TOO_LONG = re.compile(r"Got more than (\d+) bytes when reading")
_WITH_LINE = re.compile(r"([^\n]+):\n\n\s+b['\"](.*)['\"]\n")
"""aiohttp's words, then the line, then a caret below its fault."""

_NO_THREAD = "can't start new thread"  # Python's words, also where a name is resolved
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class TransportError(Exception):
    """The network or the peer broke the exchange; the text names the cause. Never leaves this package."""


class TooLargeError(TransportError):
    """A body has more bytes than may be read; the peer sent it whole, and would again."""

    def __init__(self, most: int) -> None:
        super().__init__(f"larger than {most} bytes")


class UnusableSettingError(ValueError):
    """A setting of a transport cannot be used. Holds no secret.

    ``field`` is the parameter's name, or a variable of the environment.
    """

    def __init__(self, field: str, value: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field} {value}: {problem}. {remedy}")
        self.field, self.value, self.problem, self.remedy = field, value, problem, remedy


def named(error: Exception) -> TransportError:
    """An exception as a `TransportError`; equal faults have equal texts, so that they can be counted."""
    match error:
        case TransportError():
            return error
        case UnusableSettingError():
            return TransportError(str(error))
        case aiohttp.ClientHttpProxyError():
            return refused_by_proxy(error.status)
        case aiohttp.ClientProxyConnectionError():
            return through_proxy(unreachable(error.host, error.port, error.os_error))
        case aiohttp.ClientConnectorCertificateError():
            return unreachable(error.host, error.port, error.certificate_error, type(error).__name__)
        case aiohttp.ClientConnectorError():
            return unreachable(error.host, error.port, error.os_error, type(error).__name__)
        case aiohttp.ClientResponseError():
            return no_valid_http(error.message)
        case aiohttp.ClientPayloadError():
            return broken_off(error.__cause__)
    text = str(error).strip()
    return TransportError(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def is_shortage(error: BaseException) -> bool:
    """Whether this machine lacked files, memory, threads or ports: that says nothing about the provider."""
    return any(map(_is_shortage, causes_of(error)))


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, RuntimeError):
        return str(error) == _NO_THREAD
    if isinstance(error, socket.gaierror):
        return error.errno in (socket.EAI_MEMORY, socket.EAI_SYSTEM)
    return isinstance(error, OSError) and error.errno in _SHORTAGES


def unreachable(host: str, port: int | None, error: Exception, kind: str | None = None) -> TransportError:
    """No connection: the name does not resolve, no server answers, or TLS fails."""
    return TransportError(f"{kind or type(error).__name__}: cannot connect to {host}:{port}: {error}")


def no_valid_http(message: str) -> TransportError:
    """The bytes of a reply violate HTTP/1.1; ``message`` is aiohttp's, of several lines.

    The text is one line without what varies: the name of a header, not its value, and no data.
    """
    if bound := _TOO_LONG.match(message):
        return TransportError(f"{NO_HTTP}a line of its headers has more than {bound[1]} bytes")
    found = _WITH_LINE.search(message)
    if found is None:
        words, name = message.strip().partition("\n")[0].partition(": b")[0][:_SHOWN], ""
    else:
        words, name = found[1].strip(), found[2].partition(":")[0][:_SHOWN]
    shown = "" if "chunk" in words or name.lower() in words.lower() else f", in '{name}'"
    return TransportError(" ".join(f"{NO_HTTP}{words}{shown}".split()))


def broken_off(cause: BaseException | None) -> TransportError:
    """The connection ended before the reply did, or its bytes violate HTTP."""
    match cause:
        case ContentLengthError():
            return TransportError("the reply breaks off: it is shorter than its Content-Length")
        case TransferEncodingError():
            return TransportError("the reply breaks off: its last chunk is missing")
        case HttpProcessingError():
            return no_valid_http(cause.message)
    return TransportError(f"the reply breaks off: {cause or 'the connection is lost'}")


def through_proxy(fault: TransportError) -> TransportError:
    """The same fault, at the proxy and not at the provider behind it."""
    return TransportError(f"the proxy: {fault}")


def refused_by_proxy(status: int) -> TransportError:
    """The proxy answered in place of the provider."""
    if status == 407:
        return TransportError("the proxy wants other credentials (status 407)")
    return TransportError(f"the proxy did not connect to the provider (status {status})")

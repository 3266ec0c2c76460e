"""Names the faults of a network exchange, so that equal faults have equal texts."""

from __future__ import annotations

import errno
import socket

import aiohttp

from fairlane.core.errors import causes_of

SHORTAGE = "the worker's machine is short of files, memory or ports: "
"""What precedes the error of an attempt that ends so."""

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class TransportError(Exception):
    """The network or the peer broke the exchange; the text names the cause. Never leaves this package."""


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
    text = str(error).strip()
    return TransportError(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def is_shortage(error: BaseException) -> bool:
    """Whether this machine lacked files, memory or ports: such a fault says nothing about the provider."""
    return any(_is_shortage(cause) for cause in causes_of(error) if isinstance(cause, OSError))


def _is_shortage(error: OSError) -> bool:
    if isinstance(error, socket.gaierror):
        return error.errno in (socket.EAI_MEMORY, socket.EAI_SYSTEM)
    return error.errno in _SHORTAGES


def unreachable(host: str, port: int | None, error: Exception, kind: str | None = None) -> TransportError:
    """No connection: the name does not resolve, no server answers, or TLS fails."""
    return TransportError(f"{kind or type(error).__name__}: cannot connect to {host}:{port}: {error}")


def through_proxy(fault: TransportError) -> TransportError:
    """The same fault, at the proxy and not at the provider behind it."""
    return TransportError(f"the proxy: {fault}")


def refused_by_proxy(status: int) -> TransportError:
    """The proxy answered in place of the provider."""
    if status == 407:
        return TransportError("the proxy wants other credentials (status 407)")
    return TransportError(f"the proxy did not connect to the provider (status {status})")

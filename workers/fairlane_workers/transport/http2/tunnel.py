"""A way through a proxy to one server: ``CONNECT``, RFC 9110, 9.3.6."""

from __future__ import annotations

import asyncio
import ssl

from fairlane_workers.transport.faults import TransportError, refused_by_proxy
from fairlane_workers.transport.proxy import Proxy
from fairlane_workers.transport.sockets import connected

ANSWER_BYTES = 16 * 1024
HEAD_END = b"\r\n\r\n"


async def tunnel(proxy: Proxy, host: str, port: int, tls: ssl.SSLContext | None) -> asyncio.Transport:
    """A transport whose bytes reach that server; ``tls`` secures the way to the proxy.

    Raises OSError where the proxy cannot be reached, `TransportError` where it does not connect.
    """
    loop = asyncio.get_running_loop()
    sock = await connected(proxy.host, proxy.port)
    transport, answer = await loop.create_connection(
        _Answer, sock=sock, ssl=tls, server_hostname=proxy.host if tls else None
    )
    try:
        server = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        fields = {"Host": server, **proxy.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        transport.write(f"CONNECT {server} HTTP/1.1\r\n{lines}\r\n".encode("ascii"))
        await answer.agreed
    except BaseException:
        transport.abort()
        raise
    return transport


class _Answer(asyncio.Protocol):
    """Reads the proxy's answer; nothing follows it, since the server is silent until it is spoken to."""

    def __init__(self) -> None:
        self.agreed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        if HEAD_END in self._data:
            self._conclude()
        elif len(self._data) > ANSWER_BYTES:
            self._fail(TransportError("the proxy: its answer is too long"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(TransportError("the proxy: it closed the connection"))

    def _conclude(self) -> None:
        version, _, rest = self._data.partition(b" ")
        if not (version.startswith(b"HTTP/1.") and rest[:3].isdigit()):
            self._fail(TransportError("the proxy: its answer is not HTTP"))
        elif rest[:3] != b"200":
            self._fail(refused_by_proxy(int(rest[:3])))
        elif not self.agreed.done():
            self.agreed.set_result(None)

    def _fail(self, fault: TransportError) -> None:
        if not self.agreed.done():
            self.agreed.set_exception(fault)
            self.agreed.exception()  # whoever waited may have left

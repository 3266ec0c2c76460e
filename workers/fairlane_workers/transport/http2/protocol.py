"""h2 as it is used here: its settings, what a request's headers are, and how a server may say goodbye."""

from __future__ import annotations

import httpx
from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.events import Event
from h2.settings import SettingCodes, Settings

FIRST_WINDOW_BYTES = 65_535  # RFC 9113, 6.9.2
WINDOW_BYTES = 2**31 - 1  # of the connection: one that reads slowly holds up no other
STREAM_WINDOW_BYTES = 256 * 1024  # of a response, ahead of its reader
HEADERS_BYTES = 64 * 1024
# RFC 9113, 8.2.2: of HTTP/1.1's connections; the host goes as :authority.
LEFT_OUT = frozenset(
    {b"host", b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)


def client() -> H2Connection:
    """A client's end of a connection: nothing may be pushed, and headers are bounded."""
    connection = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    connection.local_settings = Settings(
        client=True,
        initial_values={
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
            SettingCodes.MAX_HEADER_LIST_SIZE: HEADERS_BYTES,
        },
    )
    connection.decoder.max_header_list_size = HEADERS_BYTES
    connection.state_machine = _GoesOn()
    return connection


def request_fields(
    method: str, url: httpx.URL, headers: httpx.Headers, length: int
) -> list[tuple[bytes, bytes]]:
    """The header list of a request with a body of ``length`` bytes."""
    authority = headers.get("host") or url.netloc.decode("ascii")
    fields = [
        (b":method", method.encode("ascii")),
        (b":scheme", url.raw_scheme),
        (b":authority", authority.encode("ascii")),
        (b":path", url.raw_path),
    ]
    lower = ((name.lower(), value) for name, value in headers.raw)
    fields += [(name, value) for name, value in lower if name not in LEFT_OUT]
    if length:
        fields.append((b"content-length", b"%d" % length))
    return fields


class _GoesOn(H2ConnectionStateMachine):
    """Lets calls in flight go on after the server's GOAWAY, RFC 9113, 6.8; h2 takes it for the end of all."""

    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        return [] if input_ is ConnectionInputs.RECV_GOAWAY else super().process_input(input_)

"""What a TLS server says before it hangs up, where the connection's end has swallowed it.

In TLS 1.3 a server refuses a client after the client takes the handshake for done. What the client has sent
by then makes the server reset the connection, and its alert may be lost. Who says nothing hears it.
"""

from __future__ import annotations

import socket
import ssl
from urllib.parse import parse_qs, urlsplit

HEARD_S = 1.0  # a server that has nothing to say is silent for longer


def last_word(url: str) -> ssl.SSLError | None:
    """The alert with which the server of a ``rediss://`` URL turns a silent client away, if it does."""
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
    except OSError:  # silence, which is consent; or it is away
        pass
    return None

"""Free ports on the loopback address."""

import random
import socket
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"
FLOWER_PORT = 5555

# Below the range that outgoing connections take their ports from (Linux 32768 up, macOS 49152 up). A client
# that retries while the server is down may be given a port of that range as its source. If that is the
# server's own, the client connects to itself, and keeps the server from coming back.
FIRST, LAST = 20_000, 32_000


def is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` now. Another process may take it before the caller."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(rng: random.Random | None = None) -> Iterator[int]:
    """Random free ports; a process that loses a race for one takes the next."""
    choose = rng or random.SystemRandom()
    while True:
        port = choose.randrange(FIRST, LAST)
        if is_free(port):
            yield port


def preferred_or_free(preferred: int | None) -> Iterator[int]:
    """``preferred`` first, if nobody listens there, then `free_ports`."""
    if preferred and is_free(preferred):
        yield preferred
    yield from free_ports()


def answers(host: str, port: int, timeout: float = 0.5) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout):
            return True
    except OSError:
        return False

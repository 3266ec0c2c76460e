"""A proxy in front of Redis that drops replies on demand: the server acts, but its client gets no answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

BYTES = 1 << 16


@dataclass(slots=True)
class LossyProxy:
    """Forwards all connections to the server until a request contains a text that `lose` names."""

    url: str
    _server: tuple[str, int]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _needles: tuple[bytes, ...] = ()
    _left: int = 0
    _silent: threading.Event = field(default_factory=threading.Event)

    def fall_silent(self) -> None:
        """Forward nothing more on the connections that there are, and end none: a balancer forgot them."""
        with self._lock:
            self._silent.set()
            self._silent = threading.Event()

    def turn_to(self, url: str) -> None:
        """Take new connections to another server, as a name does that points elsewhere; others stay."""
        parts = urlsplit(url)
        self._server = parts.hostname or "127.0.0.1", parts.port or 6379

    def lose(self, *needles: bytes, times: int = 1) -> None:
        """Cut the next ``times`` connections that send any of ``needles``, each when its reply arrives."""
        with self._lock:
            self._needles, self._left = needles, times

    def lose_nothing(self) -> None:
        """Forward all that comes, whatever is left of `lose`."""
        self.lose(times=0)

    @property
    def left(self) -> int:
        """How many replies are still to be dropped."""
        with self._lock:
            return self._left

    def _is_doomed(self, request: bytes) -> bool:
        with self._lock:
            if self._left == 0 or not any(needle in request for needle in self._needles):
                return False
            self._left -= 1
            return True

    def serve(self, client: socket.socket) -> None:
        """Forward one connection, in two threads, until either side closes it or a reply is dropped."""
        doomed, silent = threading.Event(), self._silent
        with client, suppress(OSError), socket.create_connection(self._server) as server:
            ends = server, client, doomed, silent
            answers = threading.Thread(target=_forward_answers, args=ends, daemon=True)
            answers.start()
            while request := client.recv(BYTES):
                if self._is_doomed(request):
                    doomed.set()
                if not silent.is_set():
                    server.sendall(request)
            _hang_up(server)
            answers.join()


def _forward_answers(
    server: socket.socket, client: socket.socket, doomed: threading.Event, silent: threading.Event
) -> None:
    with suppress(OSError):
        while (answer := server.recv(BYTES)) and not doomed.is_set():
            if not silent.is_set():
                client.sendall(answer)
    _hang_up(client)
    _hang_up(server)


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def lossy_proxy(url: str) -> Iterator[LossyProxy]:
    """A proxy on a free loopback port in front of the Redis at ``url``; it stops when the block ends."""
    parts = urlsplit(url)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        proxy = LossyProxy(
            f"redis://127.0.0.1:{listener.getsockname()[1]}{parts.path}",
            (parts.hostname or "127.0.0.1", parts.port or 6379),
        )

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=proxy.serve, args=(client,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(_hang_up, listener)
        yield proxy

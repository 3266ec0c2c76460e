"""An embedded Redis: starts it with an append-only file in a data directory, and stops it."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fairlane.broker.transport import DEFAULT_DEPLOYMENT
from fairlane.config.topology import topology_of
from fairlane.core.errors import LocalStackError
from fairlane.embedded.guard import Guard
from fairlane.embedded.locks import DirectoryLock
from fairlane.embedded.ports import LOOPBACK, is_free, preferred_or_free
from fairlane.embedded.private import PRIVATE_UMASK, make_private
from fairlane.embedded.processes import STOP_TIMEOUT_S, Checkpoint, Process, no_checkpoint, wait_until
from fairlane.embedded.servers import Server, find_server
from fairlane.embedded.writers import remember, writer_of
from fairlane.store.connection.connect import RedisClient, open_redis, unavailable, without_password
from fairlane.store.connection.misfits import misfit_of
from fairlane.store.connection.tls_errors import in_words, options_of

START_TIMEOUT_S = 60.0
PORT_TRIES = 20
PORT_PATIENCE_S = 5.0
LONGEST_SOCKET_PATH = 100  # sockaddr_un holds 108 bytes on Linux, 104 on macOS


def ping(url: str, timeout: float = 1.0) -> str | None:
    """``None`` if a Redis answers at ``url``, else why not. Raises ``ValueError`` if it is no Redis URL.

    Raises `StoreRefuses` where it answers and refuses the password or the database.
    """
    try:
        with _client(url, timeout) as client:
            client.ping()
    except (redis.RedisError, OSError) as error:
        if misfit_of(error) is not None:
            raise unavailable(without_password(url), error) from error
        return in_words(error) or type(error).__name__
    return None


class EmbeddedRedis:
    """The best server that is installed, or ``server``, on ``data_dir``. ``port`` ``None`` or 0 takes a free
    one of the loopback address, ``preferred_port`` if possible; with ``unix_socket`` it listens only on a
    socket file. ``url`` and the data survive `restart`; ``pid`` does not. It ends with this process, even
    after kill -9; as a context manager it is up inside the block. Raises `LocalStackError` if there is none.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        preferred_port: int | None = None,
        unix_socket: bool = False,
        guard: Guard | None = None,
        server: Server | None = None,
        checkpoint: Checkpoint = no_checkpoint,
    ) -> None:
        self.data_dir = data_dir
        self.log = data_dir / "logs" / "redis.log"
        self._server = server or find_server(writer_of(data_dir))
        self._guard = guard or Guard()
        self._owns_guard = guard is None
        self._checkpoint = checkpoint
        self._lock = DirectoryLock(data_dir)
        self._port = port or 0
        self._preferred_port = preferred_port
        self._short_dir: Path | None = None
        self._socket = self._socket_path() if unix_socket else None
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """As redis-py takes it: ``redis://127.0.0.1:PORT/0`` or ``unix://PATH?db=0``."""
        return f"unix://{self._socket}?db=0" if self._socket else f"redis://{LOOPBACK}:{self._port}/0"

    @property
    def broker_url(self) -> str:
        """Its URL in Celery's form."""
        return f"redis+socket://{self._socket}?virtual_host=0" if self._socket else self.url

    @property
    def program(self) -> str:
        """The server program for messages: ``"valkey-server 9.1.2"``."""
        return f"{Path(self._server.command[0]).name} {self._server.version}"

    @property
    def process(self) -> Process:
        """The child itself. Raises `LocalStackError` before the first start."""
        if self._process is None:
            raise LocalStackError("redis", "has not been started")
        return self._process

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._process is not None and self._process.is_running

    def start(self, timeout: float = START_TIMEOUT_S) -> Self:
        """Start unless it runs; returns once it has loaded its data and answers. Raises `LocalStackError`."""
        if self.is_running:
            return self
        self._lock.acquire()
        try:
            self._listen(time.monotonic() + timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, timeout: float = STOP_TIMEOUT_S) -> None:
        """Stop it: SIGTERM, which makes it write its data; SIGKILL after ``timeout`` seconds."""
        if self._process is not None:
            self._process.stop(timeout)
        self._lock.release()
        if self._short_dir is not None:
            shutil.rmtree(self._short_dir, ignore_errors=True)
        if self._owns_guard:
            self._guard.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; after SIGKILL, which prevents further writes, wait for its end."""
        self.process.kill(number)
        if number == signal.SIGKILL:
            self.process.join(STOP_TIMEOUT_S)

    def restart(self, timeout: float = START_TIMEOUT_S) -> None:
        """Stop it if it runs, and start it again at the same address with the same data."""
        self.process.stop()
        self.start(timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _listen(self, deadline: float) -> None:
        """Start at its address, or else at the first free port that no other process takes first."""
        has_address = bool(self._port or self._socket)
        if self._port:
            # The previous server, or its last connections, may still be closing.
            wait_until(lambda: is_free(self._port), PORT_PATIENCE_S)
        ports = (
            repeat(self._port, 1)
            if has_address
            else islice(preferred_or_free(self._preferred_port), PORT_TRIES)
        )
        for port in ports:
            process = self._process = self._make_process(port)
            process.start()
            try:
                process.wait_ready(
                    max(deadline - time.monotonic(), 1.0), partial(self._is_ours, process, port)
                )
            except LocalStackError as error:
                if _cannot_read(process):
                    raise self._unreadable() from error
                if has_address or not _lost_a_race(process):
                    raise
            else:
                self._port = port
                remember(self.data_dir, self._server.writer)
                return
        raise LocalStackError("redis", f"{PORT_TRIES} ports were taken one after the other", str(self.log))

    def _unreadable(self) -> LocalStackError:
        """The error for unreadable data. Redis itself advises to truncate the file, which loses data."""
        problem = (
            f"{self.program} cannot read the data in {self.data_dir}: a later or another server wrote them"
        )
        remedy = "Install that one, or choose another --data-dir. A repair would remove data"
        return LocalStackError("redis", f"{problem}, or they are damaged. {remedy}", str(self.log))

    def _make_process(self, port: int) -> Process:
        if self._socket is not None:
            make_private(self._socket.parent)
        return Process(
            "redis",
            self._server.command_line(self.data_dir, port=port, socket=self._socket),
            log=self.log,
            guard=self._guard,
            keep_open=[self._lock.fileno],
            checkpoint=self._checkpoint,
            umask=PRIVATE_UMASK,
        )

    def _is_ours(self, process: Process, port: int) -> bool:
        """Whether this child answers, and not another server that took the port first."""
        url = self.url if self._socket else f"redis://{LOOPBACK}:{port}/0"
        try:
            with _client(url, timeout=1.0) as client:
                return client.ping() and int(client.info("server")["process_id"]) == process.pid
        except (redis.RedisError, OSError):
            return False

    def _socket_path(self) -> Path:
        path = self.data_dir.resolve() / "redis.sock"
        if len(str(path).encode()) <= LONGEST_SOCKET_PATH:
            return path
        self._short_dir = Path(tempfile.mkdtemp(prefix="fairlane-"))
        return self._short_dir / "redis.sock"


def _cannot_read(process: Process) -> bool:
    tail = process.log_tail().lower()
    return "bad file format reading the append only file" in tail or "rdb format version" in tail


def _lost_a_race(process: Process) -> bool:
    return "address already in use" in process.log_tail().lower()


def _client(url: str, timeout: float) -> RedisClient:
    if topology_of(url) is not None:
        return open_redis(url, deployment=DEFAULT_DEPLOYMENT, retries=0)
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        **options_of(url),
    )

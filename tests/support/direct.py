"""A Redis client without a pool, and the fixture ``real_redis`` of tests that alone call their server."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

import hiredis
import pytest
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import NoScriptError, ResponseError

from tests.support.redis import emptied


@pytest.fixture
def real_redis(real_server: Redis) -> Iterator[Redis]:
    """The real server, empty, with every script loaded. A folder's conftest imports it for all its tests.

    Simulations and properties send tens of thousands of small commands one after another: there redis-py
    costs more than the server. Its own ways are tested where processes are real.
    """
    with DirectRedis(real_server.connection_pool.connection_kwargs["path"]) as client:
        yield emptied(client)


Command = tuple[Any, ...]

READ_BYTES = 1 << 16


class DirectRedis(Redis):
    """redis-py's commands over one connection to a socket file, without pool or retry; replies are bytes.

    For one caller in one thread and a server that nobody else uses: transactions are plain pipelines.
    """

    def __init__(self, path: str) -> None:
        super().__init__(unix_socket_path=path, protocol=2)
        self._line = _Line(path)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its parsed reply."""
        (reply,) = self._line.ask([args])
        return _answer(self, args, options, reply)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        """A pipeline on the same socket."""
        pipeline = _DirectPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipeline.line = self._line
        return pipeline

    def close(self) -> None:
        """Close the socket."""
        self._line.close()
        super().close()


class _DirectPipeline(Pipeline):
    line: _Line

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.command_stack.append((args, options))
        return self

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, self.command_stack = self.command_stack, []
        replies = self.line.ask([args for args, _ in stack])
        return [
            reply
            if isinstance(reply, Exception) and not raise_on_error
            else _answer(self, args, options, reply)
            for (args, options), reply in zip(stack, replies, strict=True)
        ]


def _answer(client: Redis, args: Command, options: dict[str, Any], reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    callbacks: Any = client.response_callbacks
    callback = callbacks.get(args[0])
    options.pop("keys", None)  # an option of client-side caches that callbacks do not take
    return callback(reply, **options) if callback else reply


class _Line:
    """Sends commands in the Redis protocol, version 2, and reads their replies."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._reader = hiredis.Reader(replyError=_error)

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write; returns the replies in order, errors among them."""
        if not commands:
            return []
        self._socket.sendall(b"".join([hiredis.pack_command(_words(command)) for command in commands]))
        return [self._reply() for _ in commands]

    def close(self) -> None:
        self._socket.close()

    def _reply(self) -> Any:
        while (reply := self._reader.gets()) is False:  # it is not complete
            more = self._socket.recv(READ_BYTES)
            if not more:
                raise ConnectionResetError("the embedded Redis has closed its connection")
            self._reader.feed(more)
        return reply


def _words(command: Command) -> Command:
    """The arguments on the wire; a command of two words is one argument to redis-py: "SCRIPT LOAD"."""
    return (*command[0].split(" "), *command[1:]) if " " in command[0] else command


def _error(text: str) -> ResponseError:
    return NoScriptError(text) if text.startswith("NOSCRIPT") else ResponseError(text)

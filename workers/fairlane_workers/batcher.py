"""Sends Redis calls of many attempts together: what gathers during one round trip shares the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    DataError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)

from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.store.connect import RedisClient
from fairlane.store.script import Call
from fairlane.store.trust import in_words
from fairlane_workers.pause import Pause, sleep

log = get_logger("batcher")

BATCH = 256
MOST_OFFERED = 1024
AWAY_FIRST_S, AWAY_MOST_S = 0.05, 1.0

Command: TypeAlias = Call | tuple[Any, ...]
_Batch: TypeAlias = list[tuple[Command, asyncio.Future[Any] | None]]

# The server is there and will take the same call later: it fails over, has no memory or disk, or is busy.
_LATER = (ReadOnlyError, OutOfMemoryError, MasterDownError)
_LATER_CODES = ("MISCONF", "BUSY", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN")
_AWAY = (RedisConnectionError, RedisTimeoutError, OSError)


class Batcher:
    """One pipeline at a time. A Redis that is away is waited for: nothing is dropped while the worker lives.

    A call whose reply was lost is sent again. A repeated claim is answered as before, and a repeated report
    changes nothing, though it is answered as late.
    """

    def __init__(self, redis: RedisClient, pause: Pause = sleep) -> None:
        self._redis, self._pause = redis, pause
        self._pending: _Batch = []
        self._flusher: asyncio.Task[None] | None = None
        self._away_s = 0.0
        self._given_up = False

    async def send(self, command: Command) -> Any:
        """The reply to a script call, or to a plain command given as (name, *arguments). Raises `RedisError`
        where the server refuses this one call, or where Redis is away and the worker has given up."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._take(_encoded(command), reply)
        return await reply

    def offer(self, command: Command) -> None:
        """Send a command that nobody waits for; it is dropped while Redis is away or much else is waiting."""
        if not self._away_s and len(self._pending) < MOST_OFFERED:
            self._take(_encoded(command), None)

    def give_up(self) -> None:
        """The process ends: from now on a Redis that is away is not waited for."""
        self._given_up = True
        if self._away_s:
            self._fail(self._pending, RedisConnectionError("Redis is away and the worker stops"))
            self._pending = []

    def _take(self, command: Command, reply: asyncio.Future[Any] | None) -> None:
        self._pending.append((command, reply))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        while self._pending:
            batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
            try:
                await self._deliver(batch)
            except _AWAY as error:
                await self._wait_for_redis(batch, error)
            except Exception as error:
                # A defect: whoever waits must hear of it, or an attempt would be held for ever.
                log.exception("batch_failed", commands=len(batch))
                self._fail(batch, error)

    async def _deliver(self, batch: _Batch) -> None:
        replies = await self._round_trip([command for command, _ in batch])
        later: _Batch = []
        refusal: Exception | None = None
        for one, reply in zip(batch, replies, strict=True):
            if isinstance(reply, Exception) and _is_later(reply):
                later.append(one)
                refusal = reply
            else:
                _settle(one[1], reply)
        if refusal is not None:
            await self._wait_for_redis(later, refusal)
        elif self._away_s:
            log.info(Event.STORE_BACK)
            self._away_s = 0.0

    async def _wait_for_redis(self, batch: _Batch, error: Exception) -> None:
        if self._given_up:
            self._fail(batch, error)
            return
        if not self._away_s:
            log.warning(Event.STORE_UNREACHABLE, error=in_words(error))
        self._away_s = min(AWAY_MOST_S, self._away_s * 2 or AWAY_FIRST_S)
        self._pending = [one for one in batch if one[1] is not None] + self._pending
        await self._pause(self._away_s)

    async def _round_trip(self, commands: Sequence[Command]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            if isinstance(command, Call):
                command.queue(pipeline)
            else:
                pipeline.execute_command(*command)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        for i, command in enumerate(commands):
            if isinstance(replies[i], NoScriptError) and isinstance(command, Call):
                replies[i] = await self._evaluate(command)
        return replies

    async def _evaluate(self, call: Call) -> Any:
        """Run a script by its source: the server does not know it yet."""
        try:
            return await self._redis.eval(call.script.source, *call.packed)
        except _AWAY:
            raise
        except RedisError as error:
            return error

    @staticmethod
    def _fail(batch: _Batch, error: Exception) -> None:
        for _, future in batch:
            _settle(future, error)


def _settle(future: asyncio.Future[Any] | None, reply: Any) -> None:
    if future is None or future.done():
        return
    if isinstance(reply, Exception):
        future.set_exception(reply)
    else:
        future.set_result(reply)


def _is_later(refusal: Exception) -> bool:
    if isinstance(refusal, _LATER):
        return True
    return isinstance(refusal, ResponseError) and str(refusal).startswith(_LATER_CODES)


def _encoded(command: Command) -> Command:
    """The command with its text as bytes: what cannot be written fails here, not the pipeline it is in."""
    if isinstance(command, Call):
        return replace(command, packed=tuple(_bytes(argument) for argument in command.packed))
    return (command[0], *(_bytes(argument) for argument in command[1:]))


def _bytes(argument: Any) -> bytes | int | float:
    if isinstance(argument, str):
        return argument.encode(errors="replace")
    if isinstance(argument, bytes | int | float):
        return argument
    raise DataError(f"Redis takes no {type(argument).__name__}: {argument!r:.100}")

"""Sends Redis calls of many attempts together: what gathers during one round trip shares the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoScriptError, RedisError

from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.store.connect import RedisClient
from fairlane.store.script import Call

log = get_logger("batcher")

BATCH = 256
AWAY_FIRST_S, AWAY_MOST_S = 0.05, 1.0

Command = Call | tuple[Any, ...]


class Batcher:
    """One pipeline at a time. A Redis that is away is waited for: nothing is dropped while the worker lives.

    A call whose reply was lost is sent again; claims and reports answer a repetition truthfully.
    """

    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis
        self._pending: list[tuple[Command, asyncio.Future[Any]]] = []
        self._flusher: asyncio.Task[None] | None = None

    async def send(self, command: Command) -> Any:
        """The reply to a script call, or to a plain command given as (name, *arguments). Raises `RedisError`
        where the server refuses this one call."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append((command, reply))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return await reply

    async def _flush(self) -> None:
        away_s = 0.0
        while self._pending:
            batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
            try:
                replies = await self._round_trip([command for command, _ in batch])
            except (RedisError, OSError) as error:
                if not away_s:
                    log.warning(Event.STORE_UNREACHABLE, error=str(error))
                away_s = min(AWAY_MOST_S, away_s * 2 or AWAY_FIRST_S)
                self._pending = batch + self._pending
                await asyncio.sleep(away_s)  # noqa: TID251 - waits for Redis to come back
                continue
            if away_s:
                log.info(Event.STORE_BACK)
                away_s = 0.0
            for (_, future), reply in zip(batch, replies, strict=True):
                if future.done():
                    continue
                if isinstance(reply, Exception):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)

    async def _round_trip(self, commands: Sequence[Command]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            if isinstance(command, Call):
                command.queue(pipeline)
            else:
                pipeline.execute_command(*command)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        for i, reply in enumerate(replies):
            command = commands[i]
            if isinstance(reply, NoScriptError) and isinstance(command, Call):
                try:
                    replies[i] = await self._redis.eval(command.script.source, *command.packed)
                except RedisError as error:
                    replies[i] = error
        return replies

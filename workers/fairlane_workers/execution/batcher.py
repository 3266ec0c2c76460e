"""Sends the Redis calls of many attempts in pipelines: calls made during one round trip share the next."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError, MasterDownError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fairlane.core.events import Event
from fairlane.store.connection.tls_errors import in_words
from fairlane.store.redis_client import AsyncRedisClient
from fairlane.store.script import Call, Functions, Placed, is_missing, merged
from fairlane.telemetry.logs import get_logger
from fairlane_workers.transport.pause import Pause, sleep

log = get_logger("batcher")

BATCH = 256  # commands a pipeline: few enough that others do not wait long for its replies
MOST_MERGED = 32  # calls a script: it blocks Redis for about 2 ms
MOST_OFFERED = 1024  # waiting commands beyond which `offer` drops: chunks and cache writes may be lost
SPACING_S = 0.005  # seconds between round trips that carry reports only: a busy worker sends many in one
NEVER = math.inf
AWAY_FIRST_S = 0.05  # the first pause between tries while Redis is unreachable, doubled each time
AWAY_MOST_S = 1.0  # the longest: shorter than a lease, so that a short return of Redis is noticed

Command: TypeAlias = Call | tuple[Any, ...]
_Batch: TypeAlias = list[tuple[Command, asyncio.Future[Any] | None]]

# The server answers and will accept the same call later: it fails over, is out of memory or disk, or is busy.
# A script that an operator has ended has changed nothing.
_LATER = (ReadOnlyError, OutOfMemoryError, MasterDownError)
_LATER_CODES = ("MISCONF", "BUSY", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "Script killed by user")
_UNREACHABLE = (RedisConnectionError, RedisTimeoutError, OSError)


class Absence:
    """Why Redis takes no commands now. All batchers on one Redis share it, so that it is logged once."""

    def __init__(self) -> None:
        self._problems: dict[Batcher, str] = {}

    @property
    def problem(self) -> str | None:
        """In words; ``None`` while Redis takes commands."""
        return next(iter(self._problems.values()), None)

    def begin(self, batcher: Batcher, problem: str) -> None:
        """Note that a batcher cannot send."""
        if not self._problems:
            log.warning(Event.STORE_UNREACHABLE, error=problem)
        self._problems[batcher] = problem

    def end(self, batcher: Batcher) -> None:
        """Note that a batcher can send again."""
        del self._problems[batcher]
        if not self._problems:
            log.info(Event.STORE_BACK)


class Batcher:
    """Sends one pipeline at a time. While Redis is away it keeps every command and tries again.

    It sends a call again if the reply was lost. A repeated claim gets the same answer; a repeated report
    changes nothing and is answered as late. A worker has two, so that no claim waits for reports.
    """

    def __init__(
        self,
        redis: AsyncRedisClient,
        pause: Pause = sleep,
        *,
        away_most_s: float = AWAY_MOST_S,
        absence: Absence | None = None,
        observe: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """``away_most_s``: the longest pause between tries, in seconds, at most `AWAY_MOST_S`.

        Batchers on the same Redis share ``absence``. ``observe`` gets the seconds that each round trip took.
        """
        self._redis, self._pause, self._observe = redis, pause, observe
        self._functions = Functions()
        self._away_most_s = min(away_most_s, AWAY_MOST_S)
        self._pending: _Batch = []
        self._flusher: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = -SPACING_S  # the loop's time
        self._due = NEVER  # the loop's time by which what waits must be sent
        self._away_s = 0.0
        self._absence = absence or Absence()
        self._given_up = False

    async def send(self, command: Command, *, urgent: bool = True, patience_s: float = 0.0) -> Any:
        """The reply to a script call, or to a plain command given as (name, *arguments).

        A command that is not ``urgent`` waits up to ``patience_s`` seconds for others. If something was sent
        just before, it waits up to `SPACING_S` at least. Raises `RedisError` if the server rejects this one
        call, or if Redis is away and the worker has given up.
        """
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        due = loop.time() if urgent else max(self._sent_at + SPACING_S, loop.time() + patience_s)
        self._take(_encoded(command), reply, due)
        return await reply

    def offer(self, command: Command) -> None:
        """Send a command without a reply; drops it while Redis is away or many commands wait."""
        if self.trouble is None and len(self._pending) < MOST_OFFERED:
            self._take(_encoded(command), None, self._sent_at + SPACING_S)

    def give_up(self) -> None:
        """Fail all commands at once while Redis is unreachable, from now on: the process ends."""
        self._given_up = True
        if self._away_s:
            self._fail(self._pending, RedisConnectionError("Redis is away and the worker stops"))
            self._pending = []

    @property
    def trouble(self) -> str | None:
        """Why Redis takes no commands now, in words; ``None`` while it takes them."""
        return self._absence.problem

    def _take(self, command: Command, reply: asyncio.Future[Any] | None, due: float) -> None:
        self._pending.append((command, reply))
        self._due = min(self._due, due)
        if self._flusher is None:
            self._flush_in_time()

    def _flush_in_time(self) -> None:
        """Send waiting commands: now, or once the first is due."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is not None and (now >= self._due or self._due < self._timer.when()):
            self._timer.cancel()
            self._timer = None
        if now >= self._due:
            self._flusher = asyncio.create_task(self._flush())
        elif self._timer is None:
            self._timer = loop.call_at(self._due, self._flush_late)

    def _flush_late(self) -> None:
        self._timer = None
        self._flusher = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
            self._sent_at = loop.time()
            self._due = self._sent_at if self._pending else NEVER
            try:
                await self._deliver(batch)
            except _UNREACHABLE as error:
                await self._wait_for_redis(batch, error)
            except Exception as error:
                # A defect: every caller must get the error, or its attempt would be held for ever.
                log.exception(Event.BATCH_FAILED, commands=len(batch))
                self._fail(batch, error)
            if not self._away_s and loop.time() < self._due:
                break
        self._flusher = None
        if self._pending:
            self._flush_in_time()

    async def _deliver(self, batch: _Batch) -> None:
        started = time.perf_counter()
        replies = await self._round_trip([command for command, _ in batch])
        self._observe(time.perf_counter() - started)
        later: _Batch = []
        refusal: Exception | None = None
        for one, reply in zip(batch, replies, strict=True):
            if isinstance(reply, Exception) and _is_later(reply):
                later.append(one)
                refusal = reply
            else:
                _resolve(one[1], reply)
        if refusal is not None:
            await self._wait_for_redis(later, refusal)
        elif self._away_s:
            self._absence.end(self)
            self._away_s = 0.0

    async def _wait_for_redis(self, batch: _Batch, error: Exception) -> None:
        if self._given_up:
            self._fail(batch, error)
            return
        self._pending = [one for one in batch if one[1] is not None] + self._pending
        if not self._pending:
            return  # only offers are lost, and no command is left to find out when Redis is back
        self._absence.begin(self, in_words(error))
        self._away_s = min(self._away_most_s, self._away_s * 2 or AWAY_FIRST_S)
        await self._pause(self._away_s)

    async def _round_trip(self, commands: Sequence[Command]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        sent = _together(commands)
        for command, _ in sent:
            if isinstance(command, Call):
                self._functions.queue(pipeline, command)
            else:
                pipeline.execute_command(*command)
        raw: list[Any] = await pipeline.execute(raise_on_error=False)
        await self._run_missing([command for command, _ in sent], raw)
        replies: list[Any] = [None] * len(commands)
        for (command, places), reply in zip(sent, raw, strict=True):
            each = [reply] * len(places)
            if isinstance(command, Call) and not isinstance(reply, Exception):
                each = command.replies(reply)
            for place, one in zip(places, each, strict=True):
                replies[place] = one
        return replies

    async def _run_missing(self, commands: Sequence[Command], replies: list[Any]) -> None:
        """Run the calls whose script or function the server did not have, and put their replies in place."""
        missing = {
            place: command
            for place, command in enumerate(commands)
            if isinstance(command, Call) and is_missing(replies[place])
        }
        if missing:
            again = await self._functions.again(self._redis, list(missing.values()))
            for place, reply in zip(missing, again, strict=True):
                replies[place] = reply

    @staticmethod
    def _fail(batch: _Batch, error: Exception) -> None:
        for _, future in batch:
            _resolve(future, error)


def _together(commands: Sequence[Command]) -> list[tuple[Command, list[int]]]:
    """The commands to send, each with the places of the commands that it merges."""
    sent: list[tuple[Command, list[int]]] = []
    merging: dict[tuple[str, Placed], list[int]] = {}
    for place, command in enumerate(commands):
        if isinstance(command, Call) and command.script.many:
            merging.setdefault((command.script.name, command.keys), []).append(place)
        else:
            sent.append((command, [place]))
    for places in merging.values():
        for first in range(0, len(places), MOST_MERGED):
            some = places[first : first + MOST_MERGED]
            sent.append((merged([call for i in some if isinstance(call := commands[i], Call)]), some))
    return sent


def _resolve(future: asyncio.Future[Any] | None, reply: Any) -> None:
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
    """The command with its text as bytes. A wrong argument fails here, not in its whole pipeline."""
    if isinstance(command, Call):
        return replace(command, args=tuple([_bytes(argument) for argument in command.args]))
    return (command[0], *(_bytes(argument) for argument in command[1:]))


def _bytes(argument: Any) -> bytes | int | float:
    if isinstance(argument, str):
        return argument.encode(errors="replace")
    if isinstance(argument, bytes | int | float):
        return argument
    raise DataError(f"Redis takes no {type(argument).__name__}: {argument!r:.100}")

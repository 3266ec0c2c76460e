"""A verb and its calls: keys and arguments are bound by name, and it runs as EVALSHA or as a function.

`fairlane.store.verbs` reads verbs from their files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from fairlane.core.errors import ScriptError
from fairlane.store.redis_client import AsyncRedisClient, RedisClient, RedisCommands
from fairlane.store.verb_text import Function

Value = str | int | float | bytes

_MISSING = re.compile(
    r"(?:ERR )?(?:Function not found|unknown (?:sub)?command|Error compiling function)", re.IGNORECASE
)
_GONE = re.compile(r"(?:ERR )?Function not found", re.IGNORECASE)
_FORBIDDEN = re.compile(r"permissions to run the '(?:fcall|function)")


class Named(dict[str, Any]):
    """Keys by their names in headers; a script takes those that its own header names."""


@dataclass(frozen=True, slots=True)
class Script:
    """One atomic verb: ``sha`` is the argument of EVALSHA, ``source`` that of EVAL.

    ``many`` runs several calls with the same keys one after the other, if the verb's header allows that.
    ``function`` is the verb as a function of the server, if the header asks for one.
    """

    name: str
    source: str
    sha: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    many: Script | None = None
    function: Function | None = None

    def place(self, keys: Mapping[str, str | bytes | Sequence[str]]) -> Placed:
        """Put keys into the header's order, once for many calls. Raises `ScriptError` if names differ."""
        if len(keys) != len(self.keys) and not isinstance(keys, Named):
            raise ScriptError(self.name, f"takes keys {self.keys}")
        placed: list[str | bytes] = []
        try:
            for name in self.keys:
                if name.endswith("*"):
                    placed.extend(cast("Sequence[str]", keys[name[:-1]]))
                else:
                    placed.append(cast("str | bytes", keys[name]))
        except KeyError as missing:
            raise ScriptError(self.name, f"key {missing} is missing: add it to `Keys`, or pass it") from None
        return Placed(map(_encoded, placed))

    def bind(
        self, keys: Mapping[str, str | bytes | Sequence[str]] | Placed, args: Mapping[str, Value]
    ) -> Call:
        """Put keys and arguments into the header's order. Raises `ScriptError` if names do not match."""
        placed = keys if isinstance(keys, Placed) else self.place(keys)
        if len(args) != len(self.args):
            raise ScriptError(self.name, f"takes arguments {self.args}")
        try:
            return Call(self, placed, tuple([args[name] for name in self.args]))
        except KeyError as missing:
            raise ScriptError(self.name, f"argument {missing} is missing") from None


class Placed(tuple[bytes, ...]):
    """Keys in a script's order, encoded."""

    __slots__ = ()

    def followed_by(self, more: Sequence[str]) -> Placed:
        """These keys, and then those of the header's list."""
        return Placed((*self, *map(_encoded, more))) if more else self


def _encoded(key: str | bytes) -> bytes:
    """A key as Redis has it; bytes that are no text were read as surrogates."""
    if isinstance(key, bytes):
        return key
    try:
        return key.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte: the name was not read from Redis
        return key.encode(errors="replace")


@dataclass(frozen=True, slots=True)
class Call:
    """A script with its keys and arguments: those of ``count`` calls, one after the other, of a ``many``."""

    script: Script
    keys: Placed
    args: tuple[Any, ...]
    count: int = 1

    @property
    def packed(self) -> tuple[Any, ...]:
        """The arguments of EVALSHA after the digest."""
        return (len(self.keys), *self.keys, *self.args)

    def replies(self, raw: Any) -> list[Any]:
        """The reply to each of its calls; the error of a call that failed."""
        return [raw] if self.count == 1 else list(raw)

    def run(self, redis: RedisClient) -> Any:
        """Execute on a blocking client: EVALSHA, then EVAL if the server has not loaded the script."""
        try:
            return redis.evalsha(self.script.sha, *self.packed)
        except NoScriptError:
            return redis.eval(self.script.source, *self.packed)

    def look(self, redis: RedisClient) -> Any:
        """`run` for a verb that changes nothing, so that a user who may only read can call it."""
        try:
            return self.run(redis)
        except NoPermissionError:
            return redis.evalsha_ro(self.script.sha, *self.packed)

    def queue(self, pipeline: RedisCommands) -> None:
        """Append to a pipeline. The server must have loaded the script: `load_all`."""
        pipeline.evalsha(self.script.sha, *self.packed)


class Functions:
    """Runs one client's verbs as functions if the server has functions, and else as scripts.

    A call that finds its function missing, as after a failover or a restart without a file, loads it. If it
    is gone again at once, that call is a script. Servers before Redis 7.0 have no functions, and a user's
    rules may forbid them: from the first such answer on, every call is a script.
    """

    def __init__(self) -> None:
        self._kept = True

    def queue(self, pipeline: RedisCommands, call: Call) -> None:
        """Append a call to a pipeline. Where replies are `is_missing`, `again` runs their calls."""
        function = self._function(call)
        if function is None:
            call.queue(pipeline)
        else:
            pipeline.fcall(function.name, *call.packed)

    def run(self, redis: RedisClient, call: Call) -> Any:
        """Execute on a blocking client."""
        function = self._function(call)
        if function is None:
            return call.run(redis)
        try:
            return redis.fcall(function.name, *call.packed)
        except ResponseError as error:
            _raise_unless_missing(error)
        try:
            redis.function_load(function.library)
        except ResponseError as error:
            self._note_refused(error)
        if self._kept:
            try:
                return redis.fcall(function.name, *call.packed)
            except ResponseError as error:
                _raise_unless_missing(error)
                self._note_missing(error)
        return call.run(redis)

    async def again(self, redis: AsyncRedisClient, calls: Sequence[Call]) -> list[Any]:
        """Load the functions or scripts that a server misses, once each, and execute these calls of them.

        A reply may be an error. After a failover, all calls of a worker wait for this.
        """
        replies = dict[int, Any]()
        asked = [place for place, call in enumerate(calls) if self._function(call) is not None]
        called = await self._load_and_call(redis, [calls[place] for place in asked])
        for place, reply in zip(asked, called, strict=True):
            if not is_missing(reply):
                replies[place] = reply
        rest = [place for place in range(len(calls)) if place not in replies]
        replies.update(zip(rest, await _evaluate(redis, [calls[place] for place in rest]), strict=True))
        return [replies[place] for place in range(len(calls))]

    async def _load_and_call(self, redis: AsyncRedisClient, calls: Sequence[Call]) -> list[Any]:
        """Replies of calls that have functions; a missing one must be run as a script."""
        functions = [function for call in calls if (function := self._function(call)) is not None]
        libraries = {function.name: function.library for function in functions}
        if not libraries:
            return []
        pipeline = redis.pipeline(transaction=False)
        for library in libraries.values():
            pipeline.function_load(library)
        for function, call in zip(functions, calls, strict=True):
            pipeline.fcall(function.name, *call.packed)
        raw = await pipeline.execute(raise_on_error=False)
        for reply in raw:
            self._note_missing(reply)
        refused = {name: why for name, why in zip(libraries, raw, strict=False) if _takes_no_commands(why)}
        return [
            refused.get(function.name, reply) if is_missing(reply) else reply
            for function, reply in zip(functions, raw[len(libraries) :], strict=True)
        ]

    def _note_refused(self, error: ResponseError) -> None:
        """Note why FUNCTION LOAD failed: another process was first, or functions are not available.

        Raises any other error: the server takes no commands now.
        """
        if _takes_no_commands(error):
            raise error
        self._note_missing(error)

    def _note_missing(self, error: object) -> None:
        """Note whether functions are available. Another version has deleted a function that is gone again."""
        if is_missing(error) and not _GONE.match(str(error)):
            self._kept = False

    def _function(self, call: Call) -> Function | None:
        return call.script.function if self._kept else None


def is_missing(error: object) -> bool:
    """Whether a server lacks the script or the function of a call, or this user may use none.

    Then nothing has run. A user who lacks another right may fail in the middle of a script.
    """
    if isinstance(error, NoPermissionError):
        return _FORBIDDEN.search(str(error)) is not None
    if isinstance(error, NoScriptError):
        return True
    return isinstance(error, ResponseError) and _MISSING.match(str(error)) is not None


def _takes_no_commands(error: object) -> bool:
    """Whether FUNCTION LOAD failed for now, and not because another process was first or rules forbid it."""
    failed = isinstance(error, ResponseError) and not is_missing(error)
    return failed and "already exists" not in str(error)


async def _evaluate(redis: AsyncRedisClient, calls: Sequence[Call]) -> list[Any]:
    """Replies of scripts that the server lacks: the first EVAL of each loads it."""
    if not calls:
        return []
    pipeline, loaded = redis.pipeline(transaction=False), set[str]()
    for call in calls:
        if call.script.sha in loaded:
            call.queue(pipeline)
        else:
            pipeline.eval(call.script.source, *call.packed)
        loaded.add(call.script.sha)
    replies: list[Any] = await pipeline.execute(raise_on_error=False)
    return replies


def _raise_unless_missing(error: ResponseError) -> None:
    if not is_missing(error):
        raise error


def merged(calls: Sequence[Call]) -> Call:
    """One call in place of several of one script with the same keys: it reads and writes every hash once.

    Each of them is atomic by itself; one that fails does not affect the others. Raises `ScriptError` if the
    script's header allows no merging.
    """
    first = calls[0]
    if len(calls) == 1:
        return first
    if first.script.many is None:
        raise ScriptError(first.script.name, "does not say MERGES")
    args = tuple([argument for call in calls for argument in call.args])
    return Call(first.script.many, first.keys, args, len(calls))

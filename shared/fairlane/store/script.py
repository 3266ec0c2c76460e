"""Loads Lua verbs by their headers and runs them by named keys and arguments.

A file ``lua/verbs/<noun>_<verb>.lua`` opens with its purpose and four lines that are its signature::

    -- KEYS: leader lane queues*        names of the keys; a trailing * takes a list
    -- ARGV: now_ms epoch offers        names of the arguments
    -- USES: core/time lane/lease       preludes ``lua/lib/<name>.lua`` whose names the verb uses itself
    -- RETURNS: ...                     for the reader
    -- MERGES: ...                      only where calls with the same keys may be sent as one, and why

Inside, a key is ``KEY.leader``, a list ``KEY.queues[1]``, an argument ``ARG.epoch`` (always a string).

`fairlane.store.preludes` adds the preludes that those use in turn. Each stands in a block of its own, which
only the names that it gives leave, and constants are written where they are used: Lua allows a script no more
than 200 local variables, and a function 60 of other functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, cast

from redis.exceptions import NoPermissionError, NoScriptError

from fairlane.core.errors import ScriptError
from fairlane.store.preludes import LuaFile, Preludes, with_values
from fairlane.store.redis_client import RedisClient, RedisCommands

Value = str | int | float | bytes

_FOLDER = files("fairlane.store") / "lua"

# Many calls of one verb. Redis 6.2 raises errors as text, later versions as tables.
_FOR_EACH = """
local function one_call()
{text}
end
local replies = {{}}
for first = 0, #ARGV - 1, {count} do
  ARG = {arguments}
  local good, reply = pcall(one_call)
  if not good and type(reply) ~= 'table' then reply = {{ err = tostring(reply) }} end
  replies[#replies + 1] = reply or false
end
write_hashes()
return replies
"""
_HOLDERS = ("core/held_values", "core/held_hashes")  # what the calls of one script call run with


@dataclass(frozen=True, slots=True)
class Script:
    """One atomic verb: ``sha`` is the argument of EVALSHA, ``source`` that of EVAL.

    ``many`` runs several calls with the same keys one after the other, where the verb's header allows that.
    """

    name: str
    source: str
    sha: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    many: Script | None = None

    def place(self, keys: Mapping[str, str | bytes | Sequence[str]]) -> Placed:
        """Fit keys to the header, by name, once for many calls. Raises `ScriptError` on a misfit."""
        if len(keys) != len(self.keys):
            raise ScriptError(self.name, f"takes keys {self.keys}")
        placed: list[str | bytes] = []
        try:
            for name in self.keys:
                if name.endswith("*"):
                    placed.extend(cast("Sequence[str]", keys[name[:-1]]))
                else:
                    placed.append(cast("str | bytes", keys[name]))
        except KeyError as missing:
            raise ScriptError(self.name, f"{missing} is missing") from None
        return Placed(map(_encoded, placed))

    def bind(
        self, keys: Mapping[str, str | bytes | Sequence[str]] | Placed, args: Mapping[str, Value]
    ) -> Call:
        """Fit keys and arguments to the header, by name. Raises `ScriptError` on a misfit."""
        placed = keys if isinstance(keys, Placed) else self.place(keys)
        if len(args) != len(self.args):
            raise ScriptError(self.name, f"takes arguments {self.args}")
        try:
            return Call(self, placed, tuple([args[name] for name in self.args]))
        except KeyError as missing:
            raise ScriptError(self.name, f"{missing} is missing") from None


class Placed(tuple[bytes, ...]):
    """Keys in a script's order, encoded."""

    __slots__ = ()

    def followed_by(self, more: Sequence[str]) -> Placed:
        """These keys and those of the list at their end."""
        return Placed((*self, *map(_encoded, more))) if more else self


def _encoded(key: str | bytes) -> bytes:
    """A key as Redis has it; what is no text was read with surrogates in its place."""
    if isinstance(key, bytes):
        return key
    try:
        return key.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # a surrogate that no key was read with: somebody made the name up
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
        """The reply to each of its calls; one that failed has its error."""
        return [raw] if self.count == 1 else list(raw)

    def run(self, redis: RedisClient) -> Any:
        """Execute on a blocking client: EVALSHA, then EVAL where the server has not loaded the script."""
        try:
            return redis.evalsha(self.script.sha, *self.packed)
        except NoScriptError:
            return redis.eval(self.script.source, *self.packed)

    def look(self, redis: RedisClient) -> Any:
        """`run` for a verb that changes nothing, also for a user who may only read."""
        try:
            return self.run(redis)
        except NoPermissionError:
            return redis.evalsha_ro(self.script.sha, *self.packed)

    def queue(self, pipeline: RedisCommands) -> None:
        """Append to a pipeline. The server must have loaded the script: `load_all`."""
        pipeline.evalsha(self.script.sha, *self.packed)


def merged(calls: Sequence[Call]) -> Call:
    """One call in place of several of one script with the same keys: it reads and writes every hash once.

    Each of them is atomic by itself; one that fails leaves the others alone. Raises `ScriptError` where the
    script's header allows no merging.
    """
    first = calls[0]
    if len(calls) == 1:
        return first
    if first.script.many is None:
        raise ScriptError(first.script.name, "does not say MERGES")
    args = tuple([argument for call in calls for argument in call.args])
    return Call(first.script.many, first.keys, args, len(calls))


@cache
def script(name: str) -> Script:
    """The verb ``lua/verbs/<name>.lua``, read once per process."""
    return compose(_FOLDER / "verbs", name, _preludes())


def load(folder: Traversable, name: str) -> Script:
    """The verb ``verbs/<name>.lua`` of a folder that has its preludes in ``lib``."""
    return compose(folder / "verbs", name, Preludes(folder / "lib"))


def compose(verbs: Traversable, name: str, preludes: Preludes) -> Script:
    """A verb of a folder behind the preludes that it needs. Raises `ScriptError` for a wrong header."""
    verb = LuaFile.parse(name, (verbs / f"{name}.lua").read_text(encoding="utf-8"))
    keys, args = verb.words("KEYS"), verb.words("ARGV")
    needed = preludes.compose(verb)
    constants = {key: value for prelude in needed for key, value in prelude.constants.items()}
    blocks = [_enclosed(prelude) for prelude in needed if not prelude.constants]
    bindings = _bindings(name, keys)
    code = with_values("\n".join([*blocks, verb.text]), constants)
    single = f"{bindings}\nlocal ARG = {_named(args)}\n{code}"
    many = None
    if verb.words("MERGES"):
        holders = [_enclosed(preludes.files[name]) for name in _HOLDERS]
        blocks = ["local server = redis", *holders, *blocks]
        each = _FOR_EACH.format(text=verb.text, arguments=_named(args, "first + "), count=len(args))
        code = with_values("\n".join([*blocks, each]), constants)
        source = f"{bindings}\nlocal ARG\n{code}"
        many = Script(f"{name}, many", source, _digest(source), keys, args)
    return Script(name, single, _digest(single), keys, args, many)


def _digest(source: str) -> str:
    return sha1(source.encode(), usedforsecurity=False).hexdigest()


@cache
def _preludes() -> Preludes:
    return Preludes(_FOLDER / "lib")


def _enclosed(prelude: LuaFile) -> str:
    """The prelude in a block of its own, which only the names that it gives are seen outside of."""
    return f"local {', '.join(prelude.words('GIVES'))}\ndo\n{prelude.text}\nend"


def _bindings(name: str, keys: tuple[str, ...]) -> str:
    starred = [key for key in keys if key.endswith("*")]
    if starred and starred != [keys[-1]]:
        raise ScriptError(name, "only the last key may take a list")
    single = ", ".join(f"{key} = KEYS[{i}]" for i, key in enumerate(keys, 1) if not key.endswith("*"))
    rest = ""
    if starred:
        listed, before = f"KEY.{keys[-1][:-1]}", len(keys) - 1
        rest = f"{listed} = {{}} for i = {before + 1}, #KEYS do {listed}[i - {before}] = KEYS[i] end"
    return f"local KEY = {{{single}}} {rest}"


def _named(args: tuple[str, ...], first: str = "") -> str:
    """A table of the arguments by name, of the call whose arguments begin after ``first``."""
    named = ", ".join(f"{arg} = ARGV[{first}{i}]" for i, arg in enumerate(args, 1))
    return f"{{{named}}}"


@cache
def all_scripts() -> tuple[Script, ...]:
    """Every verb that ships with the package."""
    names = (entry.name for entry in (_FOLDER / "verbs").iterdir() if entry.name.endswith(".lua"))
    return tuple(script(name.removesuffix(".lua")) for name in sorted(names))


def load_all(redis: Any) -> None:
    """Load every script into the server, so that pipelines may use EVALSHA alone."""
    pipeline = redis.pipeline(transaction=False)
    for each in all_scripts():
        pipeline.script_load(each.source)
        if each.many is not None:
            pipeline.script_load(each.many.source)
    pipeline.execute()

"""Loads Lua verbs by their headers and runs them by named keys and arguments.

A file ``lua/verbs/<noun>_<verb>.lua`` opens with its purpose and four lines that are its signature::

    -- KEYS: leader lane queues*        names of the keys; a trailing * takes a list
    -- ARGV: now_ms epoch offers        names of the arguments
    -- USES: core/time lane/lease       preludes ``lua/lib/<name>.lua`` whose names the verb uses itself
    -- RETURNS: ...                     for the reader

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
from typing import Any

from redis.exceptions import NoPermissionError, NoScriptError

from fairlane.core.errors import ScriptError
from fairlane.store.preludes import LuaFile, Preludes, with_values
from fairlane.store.redis_client import RedisClient, RedisCommands

Value = str | int | float | bytes

_FOLDER = files("fairlane.store") / "lua"


@dataclass(frozen=True, slots=True)
class Script:
    """One atomic verb: ``sha`` is the argument of EVALSHA, ``source`` that of EVAL."""

    name: str
    source: str
    sha: str
    keys: tuple[str, ...]
    args: tuple[str, ...]

    def bind(self, keys: Mapping[str, str | Sequence[str]], args: Mapping[str, Value]) -> Call:
        """Fit keys and arguments to the header, by name. Raises `ScriptError` on a misfit."""
        if len(keys) != len(self.keys) or len(args) != len(self.args):
            raise ScriptError(self.name, f"takes keys {self.keys} and arguments {self.args}")
        packed: list[Any] = [0]
        try:
            for name in self.keys:
                if name.endswith("*"):
                    packed.extend(keys[name[:-1]])
                else:
                    packed.append(keys[name])
            packed[0] = len(packed) - 1
            packed.extend(args[name] for name in self.args)
        except KeyError as missing:
            raise ScriptError(self.name, f"{missing} is missing") from None
        return Call(self, tuple(packed))


@dataclass(frozen=True, slots=True)
class Call:
    """A script with its keys and arguments, packed for EVALSHA."""

    script: Script
    packed: tuple[Any, ...]

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
    code = with_values("\n".join([*blocks, verb.text]), constants)
    source = _bindings(name, keys, args) + "\n" + code
    return Script(
        name=name,
        source=source,
        sha=sha1(source.encode(), usedforsecurity=False).hexdigest(),
        keys=keys,
        args=args,
    )


@cache
def _preludes() -> Preludes:
    return Preludes(_FOLDER / "lib")


def _enclosed(prelude: LuaFile) -> str:
    """The prelude in a block of its own, which only the names that it gives are seen outside of."""
    return f"local {', '.join(prelude.words('GIVES'))}\ndo\n{prelude.text}\nend"


def _bindings(name: str, keys: tuple[str, ...], args: tuple[str, ...]) -> str:
    starred = [key for key in keys if key.endswith("*")]
    if starred and starred != [keys[-1]]:
        raise ScriptError(name, "only the last key may take a list")
    single = ", ".join(f"{key} = KEYS[{i}]" for i, key in enumerate(keys, 1) if not key.endswith("*"))
    rest = ""
    if starred:
        listed, before = f"KEY.{keys[-1][:-1]}", len(keys) - 1
        rest = f"{listed} = {{}} for i = {before + 1}, #KEYS do {listed}[i - {before}] = KEYS[i] end"
    named = ", ".join(f"{arg} = ARGV[{i}]" for i, arg in enumerate(args, 1))
    return f"local KEY = {{{single}}} {rest}\nlocal ARG = {{{named}}}"


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
    pipeline.execute()

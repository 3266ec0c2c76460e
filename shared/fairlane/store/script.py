"""Loads Lua verbs by their headers and runs them by named keys and arguments.

A file ``lua/<noun>_<verb>.lua`` opens with its purpose and four lines that are its signature::

    -- KEYS: leader lane queues*        names of the keys; a trailing * takes a list
    -- ARGV: now_ms epoch offers        names of the arguments
    -- USES: time lane                  preludes ``lua/lib/<name>.lua`` put in front, in this order
    -- RETURNS: ...                     for the reader

Inside, a key is ``KEY.leader``, a list ``KEY.queues[1]``, an argument ``ARG.epoch`` (always a string).

A prelude says ``-- GIVES: names`` and assigns them; whatever else it declares as local stays its own. So a
verb may use any number of preludes, though Lua allows a script no more than 200 local variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Protocol

from redis.exceptions import NoPermissionError, NoScriptError

from fairlane.errors import ScriptError

Value = str | int | float | bytes


class Pipeline(Protocol):
    """What `Call.queue` needs of a redis-py pipeline, blocking or not."""

    def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Script:
    """One atomic verb. ``sha`` is what EVALSHA takes; ``source`` what EVAL takes."""

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
    """A script with everything it is to be run with."""

    script: Script
    packed: tuple[Any, ...]

    def run(self, redis: Any) -> Any:
        """Execute on a blocking client: EVALSHA, then EVAL where the server does not know the script yet."""
        try:
            return redis.evalsha(self.script.sha, *self.packed)
        except NoScriptError:
            return redis.eval(self.script.source, *self.packed)

    def look(self, redis: Any) -> Any:
        """`run` for a verb that changes nothing, also for a user who may only read."""
        try:
            return self.run(redis)
        except NoPermissionError:
            return redis.evalsha_ro(self.script.sha, *self.packed)

    def queue(self, pipeline: Pipeline) -> None:
        """Append to a pipeline. The server must know the script, see `load_all`."""
        pipeline.evalsha(self.script.sha, *self.packed)


_HEADER = re.compile(r"^-- (KEYS|ARGV|USES|GIVES):(.*)$", re.MULTILINE)


@cache
def script(name: str) -> Script:
    """The verb ``lua/<name>.lua``, read once per process."""
    return load(files("fairlane.store") / "lua", name)


def load(folder: Traversable, name: str) -> Script:
    """The verb ``<name>.lua`` of a folder that has the preludes in ``lib``."""
    body = (folder / f"{name}.lua").read_text(encoding="utf-8")
    header = _header(body)
    keys, args = header.get("KEYS", ()), header.get("ARGV", ())
    used = header.get("USES", ())
    preludes = [
        _enclosed((folder / "lib" / f"{prelude}.lua").read_text(encoding="utf-8")) for prelude in used
    ]
    source = "\n".join([_bindings(name, keys, args), *preludes, body])
    return Script(
        name=name,
        source=source,
        sha=sha1(source.encode(), usedforsecurity=False).hexdigest(),
        keys=keys,
        args=args,
    )


def _header(text: str) -> dict[str, tuple[str, ...]]:
    return {key: tuple(words.split()) for key, words in _HEADER.findall(text)}


def _enclosed(prelude: str) -> str:
    """The prelude in a block of its own, which only the names that it gives are seen outside of."""
    return f"local {', '.join(_header(prelude)['GIVES'])}\ndo\n{prelude}\nend"


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
    folder = files("fairlane.store") / "lua"
    names = (entry.name for entry in folder.iterdir() if entry.name.endswith(".lua"))
    return tuple(script(name.removesuffix(".lua")) for name in sorted(names))


def load_all(redis: Any) -> None:
    """Make the server know every script, so that pipelines may use EVALSHA alone."""
    pipeline = redis.pipeline(transaction=False)
    for each in all_scripts():
        pipeline.script_load(each.source)
    pipeline.execute()

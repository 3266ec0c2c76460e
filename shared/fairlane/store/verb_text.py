"""Writes the Lua text of a verb and its preludes, as a script for EVALSHA and as a library for FCALL.

A script creates every function of its preludes again at each call. A library keeps them from its first call
on, which costs Redis a third as much (decision 0085). So preludes must keep no state in their own variables:
the state of one call is in the table ``CALL``, which is new for each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1

from fairlane.core.errors import ScriptError
from fairlane.store.preludes import LuaFile, Preludes

FUNCTION_PREFIX = "fairlane_"

# The preludes that merged calls of one script share, if their verb says HOLDS.
_HOLDERS = ("core/held_rows", "core/held_hashes")

_SCRIPT = """local KEY, ARG, CALL = nil, nil, {{}}
{preludes}
local function act()
{keys}
{code}
end
local reply = act()
{ends}
return reply
"""

# A library finds a global name by three look-ups, and a local one by none.
_GLOBALS = "cjson, ipairs, math, pairs, redis, string, table, tonumber, type, unpack"

# The preludes run at the first call: while a library loads, it has neither `redis.call` nor `math`
# (https://redis.io/docs/latest/develop/programmability/functions-intro/).
_LIBRARY = """local KEYS, ARGV, KEY, ARG, CALL, verb
local function build({globals})
{preludes}
local function act()
{keys}
{code}
end
return function()
local reply = act()
{ends}
return reply
end
end
local function run(keys, arguments)
  verb = verb or build({globals})
  KEYS, ARGV, CALL = keys, arguments, {{}}
  return verb()
end
"""

# Many calls of one verb. Redis 6.2 raises errors as text, later versions as tables.
_FOR_EACH = """local function one_call()
{text}
end
local replies = {{}}
for first = 0, #ARGV - 1, {count} do
  ARG = {arguments}
  local good, reply = pcall(one_call)
  if not good and type(reply) ~= 'table' then reply = {{ err = tostring(reply) }} end
  replies[#replies + 1] = reply or false
end
return replies"""


@dataclass(frozen=True, slots=True)
class Function:
    """A verb as a function of the server. FUNCTION LOAD takes ``library``, which has only this function."""

    name: str
    library: str


@dataclass(frozen=True, slots=True)
class VerbText:
    """The text of one form of a verb: of a single call, or of many with the same keys."""

    verb: str
    preludes: str
    keys: str
    code: str
    ends: str

    @property
    def script(self) -> str:
        """The text for EVAL."""
        return self._filled(_SCRIPT)

    @property
    def function(self) -> Function:
        """The function for FCALL. It is named by its content, so that each version calls its own."""
        body = self._filled(_LIBRARY)
        name = f"{FUNCTION_PREFIX}{self.verb}_{digest(body)[:16]}"
        return Function(name, f"#!lua name={name}\n{body}redis.register_function('{name}', run)\n")

    def _filled(self, form: str) -> str:
        return form.format(
            globals=_GLOBALS, preludes=self.preludes, keys=self.keys, code=self.code, ends=self.ends
        )


def of_one(verb: LuaFile, preludes: Preludes) -> VerbText:
    """A single call. Raises `ScriptError` for a wrong header."""
    return _text(verb, preludes, (), f"ARG = {_named(verb.words('ARGV'))}\n{verb.text}")


def of_many(verb: LuaFile, preludes: Preludes) -> VerbText:
    """Several calls in one; their arguments follow each other."""
    args = verb.words("ARGV")
    each = _FOR_EACH.format(text=verb.text, arguments=_named(args, "first + "), count=len(args))
    return _text(verb, preludes, [preludes.files[name] for name in _HOLDERS if verb.words("HOLDS")], each)


def digest(text: str) -> str:
    """The name that Redis gives a script."""
    return sha1(text.encode(), usedforsecurity=False).hexdigest()


def _text(verb: LuaFile, preludes: Preludes, holders: Sequence[LuaFile], code: str) -> VerbText:
    needed = [prelude for prelude in preludes.compose(verb) if not prelude.constants]
    ends = [name for file in (*reversed(needed), *holders) for name in file.words("ENDS")]
    mentions = _mentions(verb, needed)
    for name in mentions.keys() & ends:
        mentions[name].add(verb.name)
    used = frozenset(name for name, files in mentions.items() if files)
    inner: dict[str, list[LuaFile]] = {prelude.name: [] for prelude in needed}
    outer: list[LuaFile] = []
    for prelude in needed:
        users = set[str]().union(*(mentions[name] for name in prelude.words("GIVES")))
        alone = len(users) == 1 and verb.name not in users
        (inner[users.pop()] if alone else outer).append(prelude)

    def block(prelude: LuaFile) -> str:
        return _enclosed(prelude, preludes, used, map(block, inner[prelude.name]))

    before = ["local server = redis", *(_enclosed(file, preludes) for file in holders)] if holders else []
    text = "\n".join([*before, *map(block, outer)])
    return VerbText(
        verb.name, text, _keys(verb), preludes.bare(code), "\n".join(f"{name}()" for name in ends)
    )


def _mentions(verb: LuaFile, needed: Sequence[LuaFile]) -> Mapping[str, set[str]]:
    """By name that a prelude gives, the other files of the verb that mention it."""
    giver = {name: prelude.name for prelude in needed for name in prelude.words("GIVES")}
    found: dict[str, set[str]] = {name: set() for name in giver}
    for file in (*needed, verb):
        for name in file.every_word & giver.keys():
            if giver[name] != file.name:
                found[name].add(file.name)
    return found


def _enclosed(
    prelude: LuaFile, preludes: Preludes, used: frozenset[str] | None = None, inner: Iterable[str] = ()
) -> str:
    """The prelude in a block of its own, which only the names leave that it gives and others use.

    Without ``used``, all that it gives. ``inner``: the blocks of preludes that only it uses; their names do
    not count for the 200 local variables that Lua allows a verb.
    """
    given = prelude.words("GIVES")
    outside = [name for name in given if used is None or name in used]
    inside = [name for name in given if name not in outside]
    text = "\n".join([*inner, preludes.bare(prelude.text)])
    return f"{_declared(outside)}do\n{_declared(inside)}{text}\nend"


def _declared(names: Sequence[str]) -> str:
    return f"local {', '.join(names)}\n" if names else ""


def _keys(verb: LuaFile) -> str:
    keys = verb.words("KEYS")
    starred = [key for key in keys if key.endswith("*")]
    if starred and starred != [keys[-1]]:
        raise ScriptError(verb.name, "only the last key may take a list")
    single = ", ".join(f"{key} = KEYS[{i}]" for i, key in enumerate(keys, 1) if not key.endswith("*"))
    if not starred:
        return f"KEY = {{{single}}}"
    listed, before = f"KEY.{keys[-1][:-1]}", len(keys) - 1
    return (
        f"KEY = {{{single}}} {listed} = {{}} "
        f"for i = {before + 1}, #KEYS do {listed}[i - {before}] = KEYS[i] end"
    )


def _named(args: Sequence[str], first: str = "") -> str:
    """A table of the arguments by name, of the call whose arguments begin after ``first``."""
    named = ", ".join(f"{arg} = ARGV[{first}{i}]" for i, arg in enumerate(args, 1))
    return f"{{{named}}}"

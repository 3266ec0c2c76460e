"""What is wrong in the header of a Lua file: a verb or a prelude does what its header does not say."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from fairlane.store.preludes import LuaFile

_REACHED = re.compile(r"\b(?:KEY|ARG)\.\w+")
# Calls of functions, and constants: both may be names that a prelude gives.
_CALLED = re.compile(r"(?<![.\w'])(?:[a-z_]+(?=\()|[A-Z][A-Z_]+\b(?!\.))")
_FUNCTION = re.compile(r"^(?:local )?function [\w.]+\((?:[^\n]* end$|.*?^end$)", re.MULTILINE | re.DOTALL)
_OF_A_CALL = re.compile(r"\b(?:KEY|ARG|CALL)\.\w+")
_ASSIGNED = re.compile(r"^(?:function )?(\w+)(?= = |\()", re.MULTILINE)


def reached(file: LuaFile) -> set[str]:
    """Keys and arguments in the code, as ``KEY.name`` and ``ARG.name``."""
    return set(_REACHED.findall(file.code))


def called(file: LuaFile) -> set[str]:
    """Functions it calls and constants it reads, its own included."""
    return set(_CALLED.findall(file.code))


def assigned(file: LuaFile) -> set[str]:
    """Names that the code assigns outside of every function."""
    return set(_ASSIGNED.findall(file.code))


def declared(verb: LuaFile) -> set[str]:
    """Keys and arguments in a verb's header, as ``KEY.name`` and ``ARG.name``."""
    keys = {f"KEY.{key.rstrip('*')}" for key in verb.words("KEYS")}
    return keys | {f"ARG.{argument}" for argument in verb.words("ARGV")}


def problems(verb: LuaFile, preludes: Mapping[str, LuaFile]) -> Iterator[str]:
    """The mistakes in the headers of a verb and of the preludes that it needs, each with its file."""
    giver: dict[str, str] = {}
    for name, file in preludes.items():
        for given in file.words("GIVES"):
            if (other := giver.setdefault(given, name)) != name:
                yield f"{name}: gives {given}, as {other} does"
    needed: dict[str, LuaFile] = {}
    yield from _of_files(verb, (), needed, preludes, giver)
    for file in needed.values():
        if missing := sorted(set(file.words("NEEDS")) - declared(verb)):
            yield f"{verb.name}: {file.name} needs {', '.join(missing)}, which the verb does not declare"
    if unknown := sorted(reached(verb) - declared(verb)):
        yield f"{verb.name}: reaches for {', '.join(unknown)}, which its header does not name"


def _of_files(
    file: LuaFile,
    above: tuple[str, ...],
    needed: dict[str, LuaFile],
    preludes: Mapping[str, LuaFile],
    giver: Mapping[str, str],
) -> Iterator[str]:
    if file.name in above:
        yield f"{file.name}: uses itself: {' → '.join([*above[above.index(file.name) :], file.name])}"
        return
    yield from (f"{file.name}: {problem}" for problem in _of_file(file, preludes, giver))
    for used in file.uses:
        if used in preludes and used not in needed:
            yield from _of_files(preludes[used], (*above, file.name), needed, preludes, giver)
    if file.name in preludes:
        needed[file.name] = file


def _of_file(file: LuaFile, preludes: Mapping[str, LuaFile], giver: Mapping[str, str]) -> Iterator[str]:
    for used in file.uses:
        if used not in preludes:
            yield f"uses {used}, which is no prelude{_nearest(used, preludes)}"
    for name in sorted(called(file) & giver.keys()):
        if giver[name] not in (*file.uses, file.name):
            yield f"uses {name} without naming {giver[name]}, which gives it"
    if file.name not in preludes:
        return
    for ending in file.words("ENDS"):
        if ending not in file.words("GIVES"):
            yield f"says that {ending} ends a script, and does not give it"
    for given in file.words("GIVES"):
        if given not in assigned(file):
            yield f"says that it gives {given}, and does not define it"
    if unknown := sorted(reached(file) - set(file.words("NEEDS"))):
        yield f"reaches for {', '.join(unknown)}, which its NEEDS does not name"
    if kept := sorted(set(_OF_A_CALL.findall(_FUNCTION.sub("", file.code)))):
        yield f"uses {', '.join(kept)} outside of its functions, where a server would keep it"


def _nearest(word: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(word, sorted(known), 1)
    return f"; did you mean {near[0]}?" if near else ""

"""Composes a Lua verb with the preludes it names: reads headers, checks them, and sorts by dependency.

A prelude ``lua/lib/<folder>/<name>.lua`` holds functions that several verbs share. ``core`` is time, leader
and wake-ups, ``lane`` a lane's state and permits. ``outcome`` is what a call's end changes in its lane.
``refusal`` reads 429s, ``estimate`` learns the limit from them, and ``rate`` is how fast calls then start.
``reported`` has limits in headers. ``buckets``, ``tokens``, ``concurrency``, ``circuit``, ``run``, ``job``
and ``team`` are as named.
A prelude's header says::

    -- GIVES: wake                       names that other files may use; other locals stay its own
    -- ENDS: write_states                functions of it that run once a verb has, before its script ends
    -- USES: core/time                   preludes whose names it uses itself
    -- NEEDS: KEY.dirty ARG.channel      keys and arguments it reaches for: every verb above it declares them

A header line continues on the next ones that begin with ``--`` and at least three spaces.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources.abc import Traversable

from fairlane.core.errors import ScriptError

_LINE = re.compile(r"-- (KEYS|ARGV|USES|GIVES|ENDS|NEEDS|RETURNS|MERGES|FUNCTION):(.*)")
_CONTINUED = re.compile(r"--   +(\S.*)")
_COMMENT = re.compile(r"--.*")
_COMMENTS = re.compile(r"^ *--.*\n", re.MULTILINE)  # lines of nothing else
_REACHED = re.compile(r"\b(?:KEY|ARG)\.\w+")
# Calls of functions, and constants: both may be names that a prelude gives.
_CALLED = re.compile(r"(?<![.\w'])(?:[a-z_]+(?=\()|[A-Z][A-Z_]+\b(?!\.))")
_WORD = re.compile(r"\w+")
_CONSTANT = re.compile(r"([A-Z_]+) = (-?[0-9.]+(?:e[0-9]+)?)\s*")
_NAME = re.compile(r"(?<![.\w'])[A-Z][A-Z_]*\b")  # of a constant, where its value is used
_FUNCTION = re.compile(r"^(?:local )?function [\w.]+\((?:[^\n]* end$|.*?^end$)", re.MULTILINE | re.DOTALL)
_OF_A_CALL = re.compile(r"\b(?:KEY|ARG|CALL)\.\w+")
_ASSIGNED = re.compile(r"^(?:function )?(\w+)(?= = |\()", re.MULTILINE)


@dataclass(frozen=True)
class LuaFile:
    """A verb or a prelude: its text, and the words of each line of its header by their label."""

    name: str
    text: str
    header: Mapping[str, tuple[str, ...]]

    @classmethod
    def parse(cls, name: str, text: str) -> LuaFile:
        """Read the header, which is every comment before the first line of code."""
        header: dict[str, tuple[str, ...]] = {}
        label = None
        for line in text.splitlines():
            if not line.startswith("--"):
                break
            if opened := _LINE.match(line):
                label = opened[1]
                header[label] = tuple(opened[2].split())
            elif label and (more := _CONTINUED.match(line)):
                header[label] += tuple(more[1].split())
            else:
                label = None
        return cls(name, text, header)

    def words(self, label: str) -> tuple[str, ...]:
        """The words of a line of the header; none where there is no such line."""
        return self.header.get(label, ())

    @property
    def uses(self) -> tuple[str, ...]:
        """Preludes whose names this file uses itself."""
        return self.words("USES")

    @cached_property
    def code(self) -> str:
        """The text without comments."""
        return _COMMENT.sub("", self.text)

    @cached_property
    def reached(self) -> frozenset[str]:
        """Keys and arguments in the code, as ``KEY.name`` and ``ARG.name``."""
        return frozenset(_REACHED.findall(self.code))

    @cached_property
    def called(self) -> frozenset[str]:
        """Functions it calls and constants it reads, its own included."""
        return frozenset(_CALLED.findall(self.code))

    @cached_property
    def every_word(self) -> frozenset[str]:
        """Names and other words in the code."""
        return frozenset(_WORD.findall(self.code))

    @cached_property
    def assigned(self) -> frozenset[str]:
        """Names that the code assigns outside of every function."""
        return frozenset(_ASSIGNED.findall(self.code))

    @cached_property
    def constants(self) -> Mapping[str, str]:
        """The numbers by name of a file that holds nothing else; of any other file, nothing."""
        lines = [line for line in self.code.splitlines() if line.strip()]
        found = [_CONSTANT.fullmatch(line) for line in lines]
        return {each[1]: each[2] for each in found if each} if all(found) else {}


class Preludes:
    """The preludes of one folder. Every mistake in a header raises `ScriptError` when a verb is composed."""

    def __init__(self, folder: Traversable) -> None:
        found = {
            f"{room.name}/{entry.name.removesuffix('.lua')}": entry
            for room in folder.iterdir()
            if room.is_dir()
            for entry in room.iterdir()
            if entry.name.endswith(".lua")
        }
        self._files = {
            name: LuaFile.parse(name, found[name].read_text(encoding="utf-8")) for name in sorted(found)
        }
        self._giver: dict[str, str] = {}
        self._checked: set[str] = set()
        self._bare: dict[str, str] = {}
        self._constants = {
            key: value for file in self._files.values() for key, value in file.constants.items()
        }
        for name, file in self._files.items():
            for given in file.words("GIVES"):
                if (other := self._giver.setdefault(given, name)) != name:
                    raise ScriptError(name, f"gives {given}, as {other} does")

    @property
    def files(self) -> Mapping[str, LuaFile]:
        """Every prelude by its name, which is its path without ``.lua``."""
        return self._files

    def bare(self, text: str) -> str:
        """The text without lines of comments, and with the numbers of constants in place of their names."""
        if text not in self._bare:
            stripped = _COMMENTS.sub("", text)
            self._bare[text] = _NAME.sub(lambda found: self._constants.get(found[0], found[0]), stripped)
        return self._bare[text]

    def compose(self, verb: LuaFile) -> list[LuaFile]:
        """The preludes that a verb needs, itself or through others, each after those that it uses."""
        ordered: dict[str, LuaFile] = {}
        self._visit(verb, (), ordered)
        declared = {f"KEY.{key.rstrip('*')}" for key in verb.words("KEYS")}
        declared |= {f"ARG.{argument}" for argument in verb.words("ARGV")}
        for file in ordered.values():
            if missing := sorted(set(file.words("NEEDS")) - declared):
                raise ScriptError(
                    verb.name, f"{file.name} needs {', '.join(missing)}, which the verb does not declare"
                )
        if unknown := sorted(verb.reached - declared):
            raise ScriptError(verb.name, f"reaches for {', '.join(unknown)}, which its header does not name")
        return list(ordered.values())

    def _visit(self, file: LuaFile, above: tuple[str, ...], ordered: dict[str, LuaFile]) -> None:
        if file.name in above:
            circle = [*above[above.index(file.name) :], file.name]
            raise ScriptError(file.name, f"uses itself: {' → '.join(circle)}")
        if file.name in ordered:
            return
        if file.name not in self._checked:
            for problem in self._problems(file):
                raise ScriptError(file.name, problem)
            self._checked.add(file.name)
        for used in file.uses:
            self._visit(self._files[used], (*above, file.name), ordered)
        if file.name in self._files:
            ordered[file.name] = file

    def _problems(self, file: LuaFile) -> Iterator[str]:
        for used in file.uses:
            if used not in self._files:
                yield f"uses {used}, which is no prelude{_nearest(used, sorted(self._files))}"
        for name in sorted(file.called & self._giver.keys()):
            if self._giver[name] not in (*file.uses, file.name):
                yield f"uses {name} without naming {self._giver[name]}, which gives it"
        if file.name not in self._files:
            return
        for ending in file.words("ENDS"):
            if ending not in file.words("GIVES"):
                yield f"says that {ending} ends a script, and does not give it"
        for given in file.words("GIVES"):
            if given not in file.assigned:
                yield f"says that it gives {given}, and does not define it"
        if unknown := sorted(file.reached - set(file.words("NEEDS"))):
            yield f"reaches for {', '.join(unknown)}, which its NEEDS does not name"
        if kept := sorted(set(_OF_A_CALL.findall(_FUNCTION.sub("", file.code)))):
            yield f"uses {', '.join(kept)} outside of its functions, where a server would keep it"


def _nearest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else ""

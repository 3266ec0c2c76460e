"""Composes a Lua verb with the preludes that its header names, sorted by dependency.

Tests check that the headers are right.

A prelude ``lua/lib/<folder>/<name>.lua`` holds functions that several verbs share. ``core`` is time, leader
and wake-ups, ``lane`` a lane's state and permits. ``outcome`` is what a call's end changes in its lane.
``refusal`` reads 429s, ``estimate`` learns the limit from them, and ``rate`` is how fast calls then start.
``reported`` has limits in headers. ``buckets``, ``tokens``, ``concurrency``, ``circuit``, ``run``, ``job``
and ``team`` are as named.
A prelude's header says::

    -- GIVES: wake                       names that other files may use
    -- ENDS: write_states                its functions that run after the verb, before the script ends
    -- USES: core/time                   preludes whose names it uses itself
    -- NEEDS: KEY.dirty ARG.channel      keys and arguments it uses: every verb that uses it declares them

A header line continues on the next ones that begin with ``--`` and at least three spaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources.abc import Traversable

_LINE = re.compile(r"-- (KEYS|ARGV|USES|GIVES|ENDS|NEEDS|RETURNS|MERGES|HOLDS|FUNCTION):(.*)")
_CONTINUED = re.compile(r"--   +(\S.*)")
_COMMENT = re.compile(r"--.*")
_COMMENTS = re.compile(r"^ *--.*\n", re.MULTILINE)  # lines that are only a comment
_WORD = re.compile(r"\w+")
_CONSTANT = re.compile(r"([A-Z_]+) = (-?[0-9.]+(?:e[0-9]+)?)\s*")
_NAME = re.compile(r"(?<![.\w'])[A-Z][A-Z_]*\b")  # of a constant, where its value is used


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
        """The words of a line of the header; none if there is no such line."""
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
    def every_word(self) -> frozenset[str]:
        """Names and other words in the code."""
        return frozenset(_WORD.findall(self.code))

    @cached_property
    def constants(self) -> Mapping[str, str]:
        """The constants by name of a file that has only constants; empty for any other file."""
        lines = [line for line in self.code.splitlines() if line.strip()]
        found = [_CONSTANT.fullmatch(line) for line in lines]
        return {each[1]: each[2] for each in found if each} if all(found) else {}


def lua_files(folder: Traversable) -> dict[str, Traversable]:
    """The Lua files in the rooms of a folder, by their paths without ``.lua``."""
    return {
        f"{room.name}/{entry.name.removesuffix('.lua')}": entry
        for room in folder.iterdir()
        if room.is_dir()
        for entry in room.iterdir()
        if entry.name.endswith(".lua")
    }


class Preludes:
    """The preludes of one folder."""

    def __init__(self, folder: Traversable) -> None:
        found = lua_files(folder)
        self.files = {
            name: LuaFile.parse(name, found[name].read_text(encoding="utf-8")) for name in sorted(found)
        }
        """Every prelude by its name, which is its path without ``.lua``."""
        self._bare: dict[str, str] = {}
        self._constants = {
            key: value for file in self.files.values() for key, value in file.constants.items()
        }

    def bare(self, text: str) -> str:
        """The text without comment lines, and with the values of constants in place of their names."""
        if text not in self._bare:
            stripped = _COMMENTS.sub("", text)
            self._bare[text] = _NAME.sub(lambda found: self._constants.get(found[0], found[0]), stripped)
        return self._bare[text]

    def compose(self, verb: LuaFile) -> list[LuaFile]:
        """The preludes that a verb needs, itself or through others, each after those that it uses."""
        ordered: dict[str, LuaFile] = {}
        self._add_used(verb, ordered)
        return list(ordered.values())

    def _add_used(self, file: LuaFile, ordered: dict[str, LuaFile]) -> None:
        for used in file.uses:
            if used not in ordered:
                self._add_used(self.files[used], ordered)
                ordered[used] = self.files[used]

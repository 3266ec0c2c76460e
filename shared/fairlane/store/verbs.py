"""Reads Lua verbs from their files and composes them with their preludes; headers are their signatures.

Verbs stand in folders of ``lua/verbs``. ``job`` is attempts, permits and delays, ``team`` inboxes and
budgets, ``process`` the leader and the workers; ``lane`` and ``run`` are as named. A file
``<noun>_<verb>.lua`` opens with its purpose and four lines that are its signature::

    -- KEYS: leader lane queues*        names of the keys; a trailing * takes a list
    -- ARGV: now_ms epoch offers        names of the arguments
    -- USES: core/time lane/lease       preludes ``lua/lib/<name>.lua`` whose names the verb uses itself
    -- RETURNS: ...                     for the reader
    -- MERGES: ...                      only if calls with the same keys may be sent as one, and why
    -- HOLDS: ...                       only if such calls read and change the same hash as a whole, and which
    -- FUNCTION: ...                    only if the server keeps the verb as a function, and why

Inside, a key is ``KEY.leader``, a list ``KEY.queues[1]``, an argument ``ARG.epoch`` (always a string). The
table ``CALL`` is empty when a script begins: preludes keep their state of one script there.

`fairlane.store.preludes` adds the preludes that those use in turn. Each is a block of its own, which only the
names that it gives leave; if only one other prelude uses them, it is inside that one's block. Constants are
replaced by their values. Lua allows a script no more than 200 local variables at once, and a
function 60 of other functions.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from fairlane.store.preludes import LuaFile, Preludes, lua_files
from fairlane.store.script import Script
from fairlane.store.verb_text import VerbText, digest, of_many, of_one

_FOLDER = files("fairlane.store") / "lua"


@cache
def script(name: str) -> Script:
    """The verb of that name, read once per process."""
    return _composed(_verbs(), name, _preludes())


def load(folder: Traversable, name: str) -> Script:
    """A verb below ``verbs`` of a folder that has its preludes in ``lib``."""
    return _composed(_verbs_in(folder / "verbs"), name, Preludes(folder / "lib"))


def _composed(verbs: Mapping[str, Traversable], name: str, preludes: Preludes) -> Script:
    """A verb behind the preludes that it needs."""
    verb = LuaFile.parse(name, verbs[name].read_text(encoding="utf-8"))
    many = _form(verb, of_many(verb, preludes), f"{name}, many") if verb.words("MERGES") else None
    return replace(_form(verb, of_one(verb, preludes), name), many=many)


def _form(verb: LuaFile, text: VerbText, name: str) -> Script:
    source = text.script
    function = text.function if verb.words("FUNCTION") else None
    return Script(name, source, digest(source), verb.words("KEYS"), verb.words("ARGV"), function=function)


@cache
def _verbs() -> Mapping[str, Traversable]:
    return _verbs_in(_FOLDER / "verbs")


def _verbs_in(folder: Traversable) -> Mapping[str, Traversable]:
    """The file of each verb by its name; folders are only for readers."""
    return {path.partition("/")[2]: entry for path, entry in lua_files(folder).items()}


@cache
def _preludes() -> Preludes:
    return Preludes(_FOLDER / "lib")


@cache
def all_scripts() -> tuple[Script, ...]:
    """Every verb that ships with the package."""
    return tuple(script(name) for name in sorted(_verbs()))


def load_all(redis: Any) -> None:
    """Load every script that the server lacks, so that pipelines need only EVALSHA."""
    forms = [form for each in all_scripts() for form in (each, each.many) if form is not None]
    known = redis.script_exists(*(form.sha for form in forms))
    pipeline = redis.pipeline(transaction=False)
    for form, is_known in zip(forms, known, strict=True):
        if not is_known:
            pipeline.script_load(form.source)
    pipeline.execute()

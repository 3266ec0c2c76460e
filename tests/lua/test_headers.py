"""Every Lua file declares in its header what it uses, and uses what it declares."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from redis import Redis

from fairlane.core.errors import ScriptError
from fairlane.store.preludes import LuaFile, Preludes
from fairlane.store.verb_text import of_many, of_one
from fairlane.store.verbs import all_scripts, script
from tests.support.lua_headers import assigned, called, declared, problems, reached

FOLDER = Path(str(files("fairlane.store") / "lua"))
PATHS = sorted((FOLDER / "verbs").rglob("*.lua"), key=lambda path: path.stem)
VERBS = {path.stem: LuaFile.parse(path.stem, path.read_text(encoding="utf-8")) for path in PATHS}
PRELUDES = Preludes(FOLDER / "lib").files
FILES = [*VERBS.values(), *PRELUDES.values()]
LONGEST_VERB, LONGEST_PRELUDE, WIDEST = 60, 85, 120
DIRECT_OF_A_VERB, DIRECT_OF_A_PRELUDE = 6, 12
SPARE_NAMES = 40
"""Each verb can have so many more before it meets Lua's bound."""


def _names(file: LuaFile) -> str:
    return file.name


every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=_names)
every_prelude = pytest.mark.parametrize("prelude", PRELUDES.values(), ids=_names)
every_file = pytest.mark.parametrize("file", FILES, ids=_names)


def test_every_verb_stands_in_a_folder_and_has_a_name_of_its_own() -> None:
    assert {path.parents[1] for path in PATHS} == {FOLDER / "verbs"}
    assert len(VERBS) == len(PATHS)


@every_verb
def test_a_header_states_purpose_signature_and_result(verb: LuaFile) -> None:
    lines = verb.text.splitlines()
    assert re.match(r"^-- [A-Z].*[.:]$", lines[0])
    assert lines[1].startswith("-- KEYS: ")
    assert "RETURNS" in verb.header


@every_verb
def test_the_headers_of_a_verb_and_of_its_preludes_have_no_mistake(verb: LuaFile) -> None:
    assert list(problems(verb, PRELUDES)) == []


@every_verb
def test_a_verb_declares_only_what_it_or_a_prelude_reaches_for(verb: LuaFile) -> None:
    composed = [verb, *Preludes(FOLDER / "lib").compose(verb)]
    assert declared(verb) == {name for file in composed for name in reached(file)}


@every_file
def test_a_file_names_few_preludes_all_that_it_uses_and_no_others(file: LuaFile) -> None:
    assert file.uses == tuple(sorted(set(file.uses)))
    for used in file.uses:
        assert set(PRELUDES[used].words("GIVES")) & called(file), f"{used} is named and not used"
    most = DIRECT_OF_A_PRELUDE if file.name in PRELUDES else DIRECT_OF_A_VERB
    count = len(file.uses)
    assert count <= most, (
        f"{file.name} uses {count} preludes of {most}: let one that it uses give what it needs"
    )


@every_prelude
def test_a_prelude_gives_all_that_it_assigns_and_everything_it_gives_is_used(prelude: LuaFile) -> None:
    given = set(prelude.words("GIVES"))
    assert given == assigned(prelude)
    used = {word for file in FILES if file is not prelude for word in re.findall(r"\w+", file.code)}
    called_around_verbs = {"write_hashes"} if prelude.name == "core/held_rows" else set()
    assert given <= used | called_around_verbs


@every_prelude
def test_a_prelude_needs_only_what_it_reaches_for(prelude: LuaFile) -> None:
    assert set(prelude.words("NEEDS")) == reached(prelude)


@every_file
def test_keys_and_arguments_are_reached_by_name_and_are_never_searched(file: LuaFile) -> None:
    assert not re.search(r"\b(KEYS|ARGV|KEY|ARG)\s*\[", file.code)
    assert not re.search(r"redis\.call\('(KEYS|SCAN)'", file.code)
    assert "redis.pcall" not in file.code  # scripts that are merged have none


@every_file
def test_a_file_is_short_unless_it_lists_constants_and_no_line_is_wide(file: LuaFile) -> None:
    lines, most = file.text.splitlines(), LONGEST_PRELUDE if file.name in PRELUDES else LONGEST_VERB
    long = (
        f"{file.name} has {len(lines)} lines of {most}: move a function into a prelude of lib/ that it uses"
    )
    assert file.constants or len(lines) <= most, long
    assert [line for line in lines if len(line) > WIDEST] == []


def test_every_verb_is_called_from_python_and_every_call_has_its_verb() -> None:
    package = FOLDER.parents[1]
    bound = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r"\b(?:script|bound)\(\s*\"(\w+)\"", path.read_text(encoding="utf-8"))
    }
    assert bound == set(VERBS)


def test_the_server_compiles_every_verb_under_the_digest_we_expect(real_redis: Redis) -> None:
    assert [each.name for each in all_scripts()] == list(VERBS)
    for verb in all_scripts():
        for each in filter(None, (verb, verb.many)):
            assert real_redis.script_load(each.source) == each.sha


def test_every_verb_has_room_for_more_names(real_redis: Redis) -> None:
    preludes = Preludes(FOLDER / "lib")
    for verb in VERBS.values():
        for form in (of_one, of_many) if verb.words("MERGES") else (of_one,):
            text = form(verb, preludes)
            more = ", ".join(f"spare_{number}" for number in range(SPARE_NAMES))
            real_redis.script_load(replace(text, preludes=f"{text.preludes}\nlocal {more}").script)


def test_a_prelude_that_one_other_uses_stands_in_its_block(tmp_path: Path) -> None:
    room = tmp_path / "lib" / "a"
    room.mkdir(parents=True)
    for name, text in {
        "deep": "-- GIVES: deep\nfunction deep() return 1 end\n",
        "inner": "-- GIVES: inner\n-- USES: a/deep\nfunction inner() return deep() + 1 end\n",
        "outer": "-- GIVES: outer\n-- USES: a/inner\nfunction outer() return inner() + 1 end\n",
        "shared": "-- GIVES: shared\n-- USES: a/outer\nfunction shared() return outer() end\n",
    }.items():
        (room / f"{name}.lua").write_text(text)
    verb = LuaFile.parse("v", "-- KEYS: k\n-- ARGV:\n-- USES: a/outer a/shared\nreturn {outer(), shared()}\n")
    text = of_one(verb, Preludes(tmp_path / "lib"))
    assert [line for line in text.preludes.splitlines() if line.startswith("local ") or line == "end"] == [
        *("local outer", "local inner", "local deep", "end", "end", "end", "local shared", "end"),
    ]


@pytest.mark.parametrize("left_out", ["key", "argument", "extra"])
def test_binding_refuses_what_does_not_fit_the_header(left_out: str) -> None:
    keys = {} if left_out == "key" else {"leader": "k", "clock": "c"}
    args: dict[str, str | int] = {"now_ms": "", "id": "a", "lease_ms": 1}
    if left_out == "argument":
        args["lease"] = args.pop("lease_ms")
    if left_out == "extra":
        args["more"] = 1
    with pytest.raises(ScriptError, match="leader_acquire"):
        script("leader_acquire").bind(keys, args)


def test_keys_are_sent_as_they_are_whether_text_or_bytes() -> None:
    verb = script("upload_expire")
    for key, sent in (("ä", "ä".encode()), (b"\xff", b"\xff"), ("\udcff", b"\xff"), ("\ud800", b"?")):
        assert verb.bind({"state": "s", "upload": key}, {"ttl_s": 1}).keys == (b"s", sent)


def test_a_script_that_the_server_has_forgotten_is_sent_again(real_redis: Redis) -> None:
    real_redis.script_flush()
    call = script("leader_acquire").bind(
        {"leader": "k", "clock": "c"}, {"now_ms": 5, "id": "a", "lease_ms": 10, "specs": 4}
    )
    assert json.loads(call.run(real_redis)) == {"epoch": 1, "until_ms": 15, "stepped_ms": 0}

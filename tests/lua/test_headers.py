"""The header of every Lua verb is its signature: what it declares it uses, and what it uses it declares."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from redis import Redis

from fairlane.errors import ScriptError
from fairlane.store.script import all_scripts, script

FOLDER = Path(str(files("fairlane.store") / "lua"))
VERBS = sorted(path.stem for path in FOLDER.glob("*.lua"))
PRELUDES = sorted(path.stem for path in (FOLDER / "lib").glob("*.lua"))
LONGEST_VERB, LONGEST_PRELUDE = 80, 120


def _text(name: str) -> str:
    folder = FOLDER / "lib" if name in PRELUDES else FOLDER
    return (folder / f"{name}.lua").read_text(encoding="utf-8")


def _code(name: str) -> str:
    return re.sub(r"--.*", "", _text(name))


def _declared(name: str, part: str) -> list[str]:
    line = re.search(rf"^-- {part}:(.*)$", _text(name), re.MULTILINE)
    return line[1].replace("*", "").split() if line else []


def _used(name: str, table: str) -> set[str]:
    return set(re.findall(rf"\b{table}\.(\w+)", _code(name)))


def _given(prelude: str) -> set[str]:
    return set(_declared(prelude, "GIVES"))


def _needed(name: str) -> set[str]:
    """Functions it calls and constants it reads."""
    return set(re.findall(r"(?<![.\w'])(?:[a-z_]+(?=\()|[A-Z][A-Z_]+\b(?!\.))", _code(name)))


@pytest.mark.parametrize("verb", VERBS)
def test_a_header_tells_purpose_signature_and_result(verb: str) -> None:
    lines = _text(verb).splitlines()
    assert re.match(r"^-- [A-Z].*[.:]$", lines[0])
    assert lines[1].startswith("-- KEYS: ")
    assert any(line.startswith("-- RETURNS: ") for line in lines)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("table", "part"), [("KEY", "KEYS"), ("ARG", "ARGV")])
def test_a_verb_uses_what_it_declares_and_declares_what_it_uses(verb: str, table: str, part: str) -> None:
    declared, own = set(_declared(verb, part)), _used(verb, table)
    of_preludes = {name for prelude in _declared(verb, "USES") for name in _used(prelude, table)}
    assert own <= declared
    assert of_preludes <= declared, "a prelude uses what the verb does not declare"
    assert declared <= own | of_preludes, "declared, but nobody uses it"


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_names_its_preludes_in_order_and_no_others(verb: str) -> None:
    uses = _declared(verb, "USES")
    for position, name in enumerate([*uses, verb]):
        needed = {prelude for prelude in PRELUDES if prelude != name and _given(prelude) & _needed(name)}
        assert needed <= set(uses[:position]), f"{name} needs {needed}"
    for prelude in uses:
        others = [name for name in [*uses, verb] if name != prelude]
        assert any(_given(prelude) & _needed(name) for name in others), f"nobody uses {prelude}"


@pytest.mark.parametrize("prelude", PRELUDES)
def test_a_prelude_gives_what_it_says_and_everything_it_gives_is_wanted(prelude: str) -> None:
    given = _given(prelude)
    assigned = set(re.findall(r"^(?:function )?(\w+)(?: = |\()", _code(prelude), re.MULTILINE))
    assert given == assigned
    wanted = {
        word for name in VERBS + PRELUDES if name != prelude for word in re.findall(r"\w+", _code(name))
    }
    assert given <= wanted


@pytest.mark.parametrize("name", VERBS + PRELUDES)
def test_keys_and_arguments_are_reached_by_name_and_are_never_searched(name: str) -> None:
    assert not re.search(r"\b(KEYS|ARGV|KEY|ARG)\s*\[", _code(name))
    assert not re.search(r"redis\.call\('(KEYS|SCAN)'", _code(name))


@pytest.mark.parametrize("name", VERBS + PRELUDES)
def test_a_file_is_short(name: str) -> None:
    longest = LONGEST_PRELUDE if name in PRELUDES else LONGEST_VERB
    assert len(_text(name).splitlines()) < longest


def test_every_verb_is_called_from_python_and_every_call_has_its_verb() -> None:
    package = FOLDER.parents[1]
    called = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r"\bscript\(\s*\"(\w+)\"", path.read_text(encoding="utf-8"))
    }
    assert called == set(VERBS)


def test_the_server_compiles_every_verb_under_the_digest_we_expect(real_redis: Redis) -> None:
    assert [each.name for each in all_scripts()] == VERBS
    for each in all_scripts():
        assert real_redis.script_load(each.source) == each.sha


@pytest.mark.parametrize("left_out", ["key", "argument", "extra"])
def test_binding_refuses_what_does_not_fit_the_header(left_out: str) -> None:
    keys = {} if left_out == "key" else {"leader": "k"}
    args: dict[str, str | int] = {"now_ms": "", "id": "a", "lease_ms": 1}
    if left_out == "argument":
        args["lease"] = args.pop("lease_ms")
    if left_out == "extra":
        args["more"] = 1
    with pytest.raises(ScriptError, match="leader_acquire"):
        script("leader_acquire").bind(keys, args)


def test_a_script_that_the_server_has_forgotten_is_sent_again(real_redis: Redis) -> None:
    real_redis.script_flush()
    call = script("leader_acquire").bind({"leader": "k"}, {"now_ms": 5, "id": "a", "lease_ms": 10})
    assert call.run(real_redis) == [1, 15]

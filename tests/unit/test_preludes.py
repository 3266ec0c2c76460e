"""Verbs are composed with their preludes, and a mistake in a header is found, with its file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairlane.store.preludes import LuaFile, Preludes
from fairlane.store.script import Script
from fairlane.store.verbs import load
from tests.support.lua_headers import problems

CLOCK = "-- Time.\n-- GIVES: clock\nfunction clock()\n  return 1\nend\n"
WAKE = (
    "-- Wakes.\n-- GIVES: wake\n-- USES: core/clock\n-- NEEDS: KEY.dirty ARG.channel\n"
    "function wake()\n  redis.call('SADD', KEY.dirty, ARG.channel, clock())\nend\n"
)
VERB = "-- Looks.\n-- KEYS: dirty\n-- ARGV: channel\n-- USES: core/wake\n-- RETURNS: 1.\nwake()\nreturn 1\n"


def written(folder: Path, verb: str = VERB, **preludes: str) -> Path:
    """A folder with the verb ``look`` and these preludes besides `CLOCK` and `WAKE`."""
    files = {"verbs/lane/look": verb, "lib/core/clock": CLOCK, "lib/core/wake": WAKE}
    files |= {f"lib/core/{name}": text for name, text in preludes.items()}
    for name, text in files.items():
        path = folder / f"{name}.lua"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def compose(folder: Path, verb: str = VERB, **preludes: str) -> Script:
    return load(written(folder, verb, **preludes), "look")


def test_a_prelude_stands_after_those_it_uses_and_before_the_verb(tmp_path: Path) -> None:
    source = compose(tmp_path).source
    assert source.index("function clock") < source.index("function wake") < source.index("\nwake()")


def test_a_prelude_that_two_others_use_stands_once(tmp_path: Path) -> None:
    source = compose(tmp_path, VERB.replace("core/wake", "core/clock core/wake") + "clock()\n").source
    assert source.count("function clock") == 1


def test_a_header_line_continues_behind_an_indent(tmp_path: Path) -> None:
    verb = VERB.replace("-- USES: core/wake", "-- USES:\n--       core/wake")
    assert "function wake" in compose(tmp_path, verb).source


@pytest.mark.parametrize(
    ("verb", "preludes", "problem"),
    [
        (VERB.replace("core/wake", "core/wakes"), {}, r"uses core/wakes, which is no prelude; did you mean"),
        (VERB.replace("-- USES: core/wake\n", ""), {}, r"uses wake without naming core/wake, which gives it"),
        (VERB.replace("KEYS: dirty", "KEYS:"), {}, r"core/wake needs KEY\.dirty, which the verb does not"),
        (VERB.replace("channel", ""), {}, r"core/wake needs ARG\.channel, which the verb does not declare"),
        (VERB + "return KEY.lane\n", {}, r"reaches for KEY\.lane, which its header does not name"),
        (VERB, {"clock": CLOCK.replace("function clock", "function watch")}, r"core/clock.*gives clock, and"),
        (
            VERB,
            {"clock": CLOCK + "local x = KEY.lane\n"},
            r"core/clock.*reaches for KEY\.lane, which its NEEDS",
        ),
        (
            VERB,
            {"clock": CLOCK.replace("function", "local x = CALL.x\nfunction", 1)},
            r"core/clock.*uses CALL\.x outside of its functions, where a server would keep it",
        ),
        (VERB, {"other": CLOCK}, r"core/other.*gives clock, as core/clock does"),
        (
            VERB,
            {
                "clock": CLOCK.replace("GIVES: clock", "GIVES: clock\n-- USES: core/wake").replace(
                    "1", "wake()"
                )
            },
            r"uses itself: core/wake → core/clock → core/wake",
        ),
    ],
    ids=[
        "unknown",
        "unnamed",
        "key",
        "argument",
        "undeclared",
        "ungiven",
        "needs",
        "kept",
        "twice",
        "circle",
    ],
)
def test_a_wrong_header_is_found(tmp_path: Path, verb: str, preludes: dict[str, str], problem: str) -> None:
    folder = written(tmp_path, verb, **preludes)
    found = problems(LuaFile.parse("look", verb), Preludes(folder / "lib").files)
    assert [each for each in found if re.search(problem, each)]


def test_a_right_header_has_no_problem(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert list(problems(LuaFile.parse("look", VERB), Preludes(folder / "lib").files)) == []


def test_a_file_of_numbers_is_written_where_its_names_are_used(tmp_path: Path) -> None:
    numbers = "-- GIVES: MOST LEAST\n\nMOST = 6e9 -- tokens\nLEAST = 0.1 -- LEAST of all\n"
    (tmp_path / "rate").mkdir()
    (tmp_path / "rate" / "constants.lua").write_text(numbers, encoding="utf-8")
    preludes = Preludes(tmp_path)
    assert preludes.files["rate/constants"].constants == {"MOST": "6e9", "LEAST": "0.1"}
    assert preludes.bare(" -- MOST\nx.MOST = MOST + LEASTX - LEAST") == "x.MOST = 6e9 + LEASTX - 0.1"


def test_a_file_with_anything_else_has_no_constants() -> None:
    assert LuaFile.parse("lane/x", "MOST = 3\nfunction f() return MOST end\n").constants == {}

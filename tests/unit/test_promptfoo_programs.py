"""A team's JavaScript and Python run in child processes within limits of time and memory."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import Programs, split_reference
from fairlane.embedded.reaper import read_stat
from tests.support.promptfoo import path_with_node
from tests.support.wait import wait_until

NODE = path_with_node()
NAMES = ("output", "context")

LANGUAGES = [
    pytest.param("javascript", marks=pytest.mark.skipif(NODE is None, reason="it needs Node.js")),
    "python",
]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    monkeypatch.setenv("PATH", NODE or "")
    monkeypatch.setenv("FAIRLANE_REDIS__URL", "redis://secret")
    with Programs() as found:
        yield found


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_expression_gets_the_output_and_its_context(programs: Programs, language: str) -> None:
    code = "context['vars']['word'] + output"
    assert programs.code(language, code, NAMES, ("b", {"vars": {"word": "a"}})) == "ab"


def test_a_body_of_several_lines_returns_its_value(programs: Programs) -> None:
    assert programs.code("python", "x = output\nreturn len(x)", NAMES, ("abc", {})) == 3
    assert programs.code("python", "if output:\n  return 1\nreturn 0", NAMES, ("abc", {})) == 1
    assert programs.code("python", "x = 'a\u2028b'\nreturn len(x)", NAMES, ("abc", {})) == 3
    assert programs.code("python", "x = 1\r\nreturn x", NAMES, ("abc", {})) == 1


@pytest.mark.skipif(NODE is None, reason="it needs Node.js")
def test_javascript_may_declare_promise_and_be_typed(programs: Programs, tmp_path: Path) -> None:
    assert programs.code("javascript", "const n = output.length; n > 2;", NAMES, ("abc", {})) is True
    assert programs.code("javascript", "const n = 1\nreturn n", NAMES, ("", {})) == 1
    assert programs.code("javascript", "Promise.resolve(output)", NAMES, ("x", {})) == "x"
    typed = tmp_path / "typed.ts"
    typed.write_text("export default (output: string): boolean => output === 'x';")
    if programs.problem(".ts") is None:
        assert programs.file(typed, None, ("x", {}), default="") is True


@pytest.mark.parametrize(
    ("language", "code", "words"),
    [
        ("javascript", "nothing()", "nothing is not defined"),
        ("python", "nothing()", "NameError: name 'nothing' is not defined"),
        ("javascript", "process.exit(3)", "it ended its process"),
        ("python", "exit(3)", "SystemExit: 3"),
        ("python", "__import__('os')._exit(3)", "it ended its process"),
        ("python", "[0] * 10**10", "more memory than a program may have"),
        ("python", "object().__class__.__subclasses__", "no JSON"),
    ],
)
def test_a_program_that_fails_says_why_and_the_next_one_runs(
    programs: Programs, language: str, code: str, words: str
) -> None:
    if language == "javascript" and NODE is None:
        pytest.skip("it needs Node.js")
    with pytest.raises(ProgramError, match=re.escape(words)):
        programs.code(language, code, NAMES, ("x", {}))
    assert programs.code(language, "output", NAMES, ("x", {})) == "x"


@pytest.mark.parametrize(
    ("language", "code"),
    [("javascript", "while (true) {}\nreturn 1"), ("python", "while True:\n  pass\nreturn 1")],
)
def test_a_program_that_does_not_end_is_ended(
    monkeypatch: pytest.MonkeyPatch, language: str, code: str
) -> None:
    if language == "javascript" and NODE is None:
        pytest.skip("it needs Node.js")
    monkeypatch.setenv("PATH", NODE or "")
    with Programs(call_s=0.3) as programs, pytest.raises(ProgramError, match=r"it ran longer than 0\.3 s"):
        programs.code(language, code, NAMES, ("x", {}))


def runs(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
def test_what_a_program_starts_ends_with_it(programs: Programs) -> None:
    code = "import subprocess\nreturn subprocess.Popen(['sleep', '60']).pid"
    pid = programs.code("python", code, NAMES, ("x", {}))
    assert runs(pid)
    programs.close()
    wait_until(lambda: not runs(pid), 5)


def test_a_program_finds_no_settings_of_ours_and_those_it_is_given(programs: Programs) -> None:
    programs.add_environment({"GREETING": "hi"})
    code = "import os\nreturn [os.environ.get('FAIRLANE_REDIS__URL'), os.environ.get('GREETING')]"
    assert programs.code("python", code, NAMES, ("x", {})) == [None, "hi"]


def test_what_a_program_prints_is_no_reply(programs: Programs, capfd: pytest.CaptureFixture[str]) -> None:
    assert programs.code("python", "print('{}') or 1", NAMES, ("x", {})) == 1
    assert capfd.readouterr().out == ""


def test_missing_interpreters_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "there is no node on PATH" in str(Programs().problem(".js"))
    assert "give --python PATH" in str(Programs(python="/nowhere/python").problem(".py"))
    assert "if they are JavaScript or Python" in str(Programs().problem(".rb"))


def test_a_reference_names_a_file_and_perhaps_a_function() -> None:
    assert split_reference("file://a/b.py:check") == ("a/b.py", "check")
    assert split_reference("b.js") == ("b.js", None)
    assert split_reference("a:b") == ("a:b", None)

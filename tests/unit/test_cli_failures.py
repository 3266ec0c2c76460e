"""A command that fails says why in a line or two, with an exit code and without a traceback."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fairlane.cli.failures import (
    CarefulGroup,
    Interrupted,
    describe,
    exit_code_of,
    interruptible,
    terminable,
    written_below,
)
from fairlane.cli.main import app, main
from fairlane.core.errors import (
    ConfigurationError,
    FairlaneError,
    LocalStackError,
    RunNotFound,
    StoreUnavailable,
    SubmissionError,
    TemplateError,
)


def command_that_raises(error: BaseException) -> typer.Typer:
    raising = typer.Typer(cls=CarefulGroup, pretty_exceptions_enable=False)

    @raising.callback()
    def root() -> None: ...

    @raising.command()
    def go() -> None:
        raise error

    return raising


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("redis.url", "x", "is wrong"), 2),
        (SubmissionError("dataset", "x", "is wrong", row=3), 2),
        (TemplateError("prompt", "does not compile"), 2),
        (RunNotFound("r1"), 1),
        (LocalStackError("redis", "died"), 1),
        (StoreUnavailable("redis://x", "refused"), 1),
        (FileNotFoundError(2, "No such file or directory", "questions.jsonl"), 1),
    ],
)
def test_an_error_of_ours_is_reported_in_its_own_words(error: Exception, code: int) -> None:
    result = CliRunner().invoke(command_that_raises(error), ["go"])
    assert result.exit_code == code
    assert result.stderr == f"error: {describe(error)}\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("interruption", "code"),
    [(KeyboardInterrupt(), 130), (Interrupted(signal.SIGTERM), 143), (Interrupted(), 130)],
)
def test_an_interruption_is_reported_in_one_word(interruption: BaseException, code: int) -> None:
    result = CliRunner().invoke(command_that_raises(interruption), ["go"])
    assert (result.exit_code, result.stderr) == (code, "interrupted\n")


def test_a_reader_that_went_away_is_not_worth_a_word() -> None:
    result = CliRunner().invoke(command_that_raises(BrokenPipeError()), ["go"])
    assert (result.exit_code, result.stderr) == (141, "")


def test_a_defect_of_ours_is_not_hidden() -> None:
    result = CliRunner().invoke(command_that_raises(RuntimeError("a defect")), ["go"])
    assert isinstance(result.exception, RuntimeError)


def test_a_message_is_shown_as_it_is_whatever_it_looks_like() -> None:
    error = FairlaneError("[red]not markup[/red] " + "x" * 200)
    result = CliRunner().invoke(command_that_raises(error), ["go"])
    assert result.stderr == f"error: {error}\n"


def test_a_file_that_cannot_be_read_is_named() -> None:
    error = PermissionError(13, "Permission denied", "secret.toml")
    assert describe(error) == "secret.toml: Permission denied"


def test_an_error_without_words_is_reported_by_its_kind() -> None:
    assert describe(OSError()) == "OSError"


def test_a_signal_inside_the_block_is_noted_and_raised_when_asked_for() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruptible(signal.SIGTERM) as check:
        check()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted) as caught:
            check()
        check()
    assert exit_code_of(caught.value) == 143
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "arguments",
    [["wroker"], ["up", "--wrokers", "2"], ["up", "--workers", "many"], ["up", "--workers", "-1"]],
)
def test_a_wrong_word_on_the_command_line_is_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_main_returns_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("fairlane ")
    assert main(["--config", str(tmp_path / "none.toml"), "worker"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: --config: there is no such file")
    assert len(shown.splitlines()) == 1


def test_a_closed_pipe_ends_it_quietly() -> None:
    command = [sys.executable, "-m", "fairlane.cli", "--version"]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        result = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=False, text=True)
    assert result.stderr == ""
    assert result.returncode in (1, 141)


def test_sigterm_ends_a_command_as_an_interruption() -> None:
    with pytest.raises(Interrupted) as shown, terminable():
        signal.raise_signal(signal.SIGTERM)
    assert exit_code_of(shown.value) == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_repeated_signals_without_a_check_end_the_process() -> None:
    script = (
        "import signal\n"
        "from fairlane.cli.failures import interruptible\n"
        "with interruptible(signal.SIGTERM):\n"
        "    for _ in range(3):\n"
        "        print('shown', flush=True)\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "print('went on')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGTERM
    assert ended.stdout.split() == ["shown"] * 3


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_an_error_of_a_full_disk_names_the_folder(number: int) -> None:
    with pytest.raises(OSError, match=os.strerror(number)) as caught, written_below(Path("/data/.fairlane")):
        raise OSError(number, os.strerror(number))
    assert describe(caught.value) == f"/data/.fairlane: {os.strerror(number)}"


def test_other_errors_of_files_pass_as_they_are() -> None:
    for error in (OSError(errno.EPIPE, "a"), OSError(errno.ENOSPC, "a", "/file"), StoreUnavailable("u", "c")):
        with pytest.raises(OSError, match=r"a|c") as caught, written_below(Path("/data")):
            raise error
        assert caught.value is error


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    script = f"mkdir {gone}; cd {gone}; rmdir {gone}; exec {sys.executable} -m fairlane.cli config"
    ended = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    assert "the working directory is gone" in ended.stderr

"""``fairlane connections test`` as people run it: a child makes the call, with a key and without Redis."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from fairlane.cli.main import app
from fairlane.embedded.reaper import is_running
from fairlane.testing import Faults, ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread
from tests.support.wait import wait_until

KEY = "sk-live-0123456789abcdef"
MODELS = {
    # What a call used is missing from its lane for seconds, however slowly this process answers.
    "fast": SimulatedModel(
        latency_ms=5,
        headers="full",
        requests_per_minute=600,
        tokens_per_minute=1200,
        burst_seconds=60,
        output_tokens=150,
    ),
    "stuck": SimulatedModel(faults=Faults(hang=1.0)),
}
CONFIG = """
[redis]
url = "redis://127.0.0.1:1/0"
[connections.sim]
provider = "openai"
base_url = "{url}/v1"
api_key_env = "SIM_KEY"
[connections.claude]
provider = "anthropic"
base_url = "{url}/v1"
api_key_env = "SIM_KEY"
[connections.nokey]
provider = "openai"
base_url = "{url}/v1"
api_key_env = "NOT_SET"
[lanes."sim:fast"]
max_concurrency = 3
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="children are looked for in /proc")


@dataclass(frozen=True)
class Shell:
    folder: Path
    served: ServedProvider

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "fairlane.cli", "connections", "test", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return dict(os.environ) | {"SIM_KEY": KEY}  # noqa: TID251  handed on to processes

    def __call__(self, *arguments: str, code: int = 0, **environment: str) -> Result:
        """A command in this process; it ends with ``code`` and shows no key."""
        with contextlib.chdir(self.folder):
            ended = CliRunner().invoke(
                app, ["connections", "test", *arguments], env={"SIM_KEY": KEY} | environment
            )
        assert ended.exit_code == code, ended.output
        assert KEY not in ended.output
        return ended

    def report(self, *arguments: str, code: int = 0, **environment: str) -> Any:
        return json.loads(self(*arguments, "--json", code=code, **environment).stdout)


@pytest.fixture(scope="module")
def module_shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("connections")
    with serve_in_thread(SimulatorConfig(models=MODELS, api_key=SecretStr(KEY))) as served:
        (folder / "fairlane.toml").write_text(CONFIG.format(url=served.url), encoding="utf-8")
        yield Shell(folder, served)


@pytest.fixture
def shell(module_shell: Shell) -> Shell:
    """The shell, beside a provider whose limits nobody has used."""
    module_shell.served.reset()
    return module_shell


def test_an_answer_shows_all_that_the_provider_reports(shell: Shell) -> None:
    report = shell.report("sim")
    assert (report["outcome"], report["status"], report["lane"]) == ("Success", 200, "sim:fast")
    assert report["shared_by"].startswith("credential=")
    assert report["usage"]["output_tokens"] > 0
    assert report["finish_reason"] == "stop"
    assert report["first_piece_ms"] <= report["latency_ms"]
    assert report["pieces"] > 1
    limits = report["limits"]
    assert (limits["dialect"], limits["known_by"]) == ("openai", "provider")
    assert limits["axes"]["requests"]["limit"] == 600
    assert "x-ratelimit-limit-tokens" in limits["headers"]
    assert report["charge"]["verdict"] == "agrees"


def test_a_connection_is_reported_as_text_too(shell: Shell) -> None:
    shown = shell("sim").stdout
    for said in ("an answer, HTTP 200", "600 requests/min", "1,200 tokens/min", "this agrees"):
        assert said in shown


def test_an_unstreamed_answer_of_another_protocol_is_shown(shell: Shell) -> None:
    report = shell.report(
        "claude", "-m", "fast", "--whole", "--prompt", "-n says hello", "--max-tokens", "50"
    )
    assert (report["outcome"], report["streamed"], report["pieces"]) == ("Success", False, 1)
    assert (report["lane"], report["limits"]["known_by"]) == ("claude:fast", "headers")
    assert set(report["limits"]["axes"]) == {"requests", "tokens"}


def test_a_wrong_key_is_reported_and_not_shown(shell: Shell) -> None:
    ended = shell("sim", code=1, SIM_KEY="sk-wrong-0123456789")
    assert "access denied" in ended.stdout
    assert "sk-wrong" not in ended.stdout + ended.stderr


def test_a_call_that_cannot_be_made_is_one_line(shell: Shell) -> None:
    ended = shell("nokey", "-m", "fast", code=2)
    assert "connections.nokey.api_key_env: this variable is not set here (got 'NOT_SET')" in ended.stderr
    assert (len(ended.stderr.splitlines()), ended.stdout) == (1, "")


@linux
def test_ctrl_c_ends_the_command_and_its_call(shell: Shell) -> None:
    process = subprocess.Popen(
        shell.command("sim", "-m", "stuck"),
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        before = shell.served.stats().models["stuck"].requests
        wait_until(lambda: shell.served.stats().models["stuck"].requests > before)
        (child,) = map(int, children.read_text().split())
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=20)
    assert (process.returncode, *said) == (130, "", "interrupted\n")
    wait_until(lambda: not is_running(child), timeout=10)

"""``fairlane init``, ``fairlane config``, ``fairlane estimate`` and shell completion."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from typer.testing import CliRunner, Result

from fairlane.cli.main import app
from fairlane.config.connections.presets import PRESETS
from fairlane.config.loader import load_settings
from tests.support.command_line import CommandLine
from tests.support.full_disk import full_disk


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and an environment without keys."""
    monkeypatch.chdir(tmp_path)
    for preset in PRESETS.values():
        if preset.api_key_env is not None:
            monkeypatch.delenv(preset.api_key_env, raising=False)
    return tmp_path


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env=variables)


def test_a_file_is_written_for_the_keys_that_are_set_and_it_loads(here: Path) -> None:
    result = run("init", OPENAI_API_KEY="sk-1", GROQ_API_KEY="gsk-1", AZURE_OPENAI_API_KEY="a-1")
    assert result.exit_code == 0, result.output
    text = (here / "fairlane.toml").read_text()
    assert set(load_settings(environ={}).connections) == {"openai", "groq"}
    assert "# [connections.azure_openai]" in text
    assert "azure_openai needs an address" in result.stderr
    assert not any(key in text for key in ("sk-1", "gsk-1", "a-1"))


def test_what_is_commented_is_valid_once_it_is_not(here: Path) -> None:
    text = run("init", "-o", "-").stdout
    settings = [line for line in text.splitlines() if line.startswith("# ") and ("=" in line or "[" in line)]
    (here / "fairlane.toml").write_text("\n".join(line.removeprefix("# ") for line in settings[1:]))
    assert {"openai", "anthropic"} <= set(load_settings(environ={}).connections)


def test_a_file_that_is_there_is_kept_without_force(here: Path) -> None:
    (here / "fairlane.toml").write_text("# mine")
    assert run("init").exit_code == 2
    assert (here / "fairlane.toml").read_text() == "# mine"
    assert run("init", "--force").exit_code == 0
    assert (here / "fairlane.toml").read_text() != "# mine"


def test_a_full_disk_leaves_no_part_of_a_file_and_is_named(here: Path) -> None:
    (here / "fairlane.toml").write_text("# mine")
    with full_disk():
        results = [run("init", "--force"), run("init", "-o", "other.toml")]
    assert [result.exit_code for result in results] == [1, 1]
    assert "other.toml: " in results[1].stderr
    assert [path.name for path in here.iterdir()] == ["fairlane.toml"]
    assert (here / "fairlane.toml").read_text() == "# mine"


def shown(*arguments: str, **variables: str) -> dict[str, tuple[Any, str]]:
    result = run("config", *arguments, "--json", **variables)
    assert result.exit_code == 0, result.output
    return {each["key"]: (each["value"], each["source"]) for each in json.loads(result.stdout)}


def test_each_setting_has_its_source_and_no_secret(here: Path) -> None:
    file = here / "fairlane.toml"
    file.write_text(
        '[redis]\nurl = "redis://a/0"\n[connections.x]\nprovider = "groq"\nproxy_credentials_env = "PW"\n'
        '[[teams.search.budgets]]\nper = "day"\nrequests = 5\n'
    )
    found = shown(FAIRLANE_REDIS__URL="redis://u:hunter2@b/0", FAIRLANE_WORKER__SLOTS="7")
    assert found["redis.url"] == ("redis://u:***@b/0", "the environment")
    assert found["worker.slots"] == (7, "the environment")
    assert found["connections.x.provider"] == ("groq", str(file))
    assert found["connections.x.api_key_env"] == ("GROQ_API_KEY", "preset")
    assert found["connections.x.proxy_credentials_env"] == ("PW", str(file))
    assert found["teams.search.budgets"][1] == str(file)
    assert found["team"] == ("default", "default")
    assert shown("team", "--team", "search")["team"] == ("search", "the arguments")


def test_it_can_be_narrowed(here: Path) -> None:
    assert set(shown("redis")) == {"redis.url", "redis.deployment"}
    assert shown("--changed") == {}
    assert "all settings have their defaults" in run("config", "--changed").stderr


def test_an_estimate_takes_what_submit_takes_and_submits_nothing(real_redis: Redis, here: Path) -> None:
    cli = CommandLine(real_redis)
    (here / "rows.jsonl").write_text("\n".join(json.dumps({"question": f"q{n}"}) for n in range(50)))
    ask = (
        "estimate",
        "rows.jsonl",
        "--prompt",
        "{{ question }}",
        "--model",
        "sim:fast",
        "--param",
        "max_tokens=9",
    )
    document = cli.json(*ask, "--repetitions", "2", "--limit", "10")
    assert (document["items"], document["calls"], document["rows"]) == (20, 20, 10)
    (here / "many.jsonl").write_text('{"question": "q"}\n' * 300)
    assert cli.json(ask[0], "many.jsonl", *ask[2:], "--rows", "1000", "--limit", "250")["rows"] == 250
    printed = cli(*ask)
    assert printed.exit_code == 0
    assert "50: 50 tasks, 0 evaluations" in printed.stdout
    assert "no worker is up" in printed.stderr
    assert cli.json("runs") == []


def completions(words: str) -> tuple[list[str], str]:
    """What a shell is offered, and the modules that this loads."""
    program = (
        "import sys; from fairlane.cli.main import main\n"
        "try: main()\n"
        "finally: print(sorted(sys.modules), file=sys.stderr)"
    )
    environment = {
        "_FAIRLANE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    return ended.stdout.split(), ended.stderr


def test_a_shell_completes_commands_without_loading_them_and_options() -> None:
    offered, loaded = completions("fairlane su")
    assert offered == ["submit", "summary"]
    assert "'redis'" not in loaded
    offered, _ = completions("fairlane submit --judge-m")
    assert offered == ["--judge-model"]


@pytest.mark.parametrize("command", ["config", "connections"])
@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    "lines",
    [
        'base_url = "https://host/v1?api-version=1&code=hunter2"',
        'base_url = "https://host/v1?sig=hunter2"',
        'base_url = "https://hunter2@host/v1"',
        'base_url = "https://me:hunter2@host/v1"',
        'base_url = "https://host/v1"\napi_key_command = ["vault", "read", "-token=hunter2"]',
    ],
)
def test_no_command_shows_a_credential_of_a_connection(
    here: Path, command: str, form: list[str], lines: str
) -> None:
    (here / "fairlane.toml").write_text(f'[connections.a]\nprotocol = "openai"\n{lines}\n')
    result = run(command, *form)
    assert result.exit_code == 0, result.output
    assert "hunter2" not in result.output


@pytest.mark.parametrize(
    "url", ["redis://hunter2@host/0", "redis://:hun'ter2@host/0", "redis://a:hunter2@host/0"]
)
def test_the_settings_show_no_password_of_redis(here: Path, url: str) -> None:
    shown = run("config", FAIRLANE_REDIS__URL=url).output
    assert "ter2" not in shown

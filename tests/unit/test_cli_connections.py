"""``fairlane connections`` lists ways to providers with what each lacks, and tries one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fairlane.cli.main import app
from fairlane.cli.operate.connection_probe import ProbeRefusedError, probe_fields, succeeded
from fairlane.config.connections.presets import PRESETS, PROVIDERS
from fairlane.config.loader import load_settings

CONFIG = """
[connections.plain]
protocol = "openai"
base_url = "http://127.0.0.1:1/v1"
[connections.groq]
provider = "groq"
[connections.claude]
provider = "anthropic"
lane_scope = "connection"
ca_file = "/nowhere/ca.pem"
[connections.cloud]
provider = "azure_openai"
base_url = "https://x.openai.azure.com"
proxy = "http://proxy:3128"
proxy_credentials_env = "PROXY_LOGIN"
headers = {x-team = "evals"}
error_map = {slow_down = "overloaded"}
[lanes.claude]
tokens_per_minute = 1000
[lanes."plain:small"]
requests_per_minute = 10
"""
REPORT: dict[str, Any] = {
    "connection": "plain",
    "provider": None,
    "protocol": "openai",
    "base_url": "http://127.0.0.1:1/v1",
    "model": "small",
    "lane": "plain:small",
    "shared_by": "base_url=http://127.0.0.1:1/v1 model=small",
    "streamed": True,
    "latency_ms": 1234,
    "first_piece_ms": 56,
    "pieces": 4,
    "outcome": "Success",
    "status": 200,
    "retry_after_ms": None,
    "output": "Hello\nthere.",
    "finish_reason": "stop",
    "usage": {"input_tokens": 8, "output_tokens": 3, "cached_tokens": None},
    "limits": {
        "dialect": "openai",
        "known_by": "host",
        "headers": {},
        "axes": {"requests": {"limit": 600.0, "remaining": 599.0, "reset_ms": 100}},
        "exhausted": None,
    },
    "charge": {
        "charge": "used",
        "output_factor": 1.0,
        "cache_reads": "free",
        "verdict": "differs",
        "reason": "264 tokens are gone, 264 were reserved",
    },
}


@dataclass
class Line:
    """The command line in a folder with a configuration."""

    file: Path
    environment: dict[str, str]

    def __call__(self, *arguments: str) -> Result:
        command = ["connections", "--config", str(self.file), *arguments]
        if arguments and not arguments[0].startswith("-"):
            command = ["--config", str(self.file), "connections", *arguments]
        return CliRunner().invoke(app, command, env=self.environment)

    def out(self, *arguments: str) -> str:
        result = self(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.out(*arguments, "--json"))

    def refused(self, *arguments: str) -> str:
        result = self(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        return result.stderr


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    file = tmp_path / "fairlane.toml"
    file.write_text(CONFIG, encoding="utf-8")
    for preset in PRESETS.values():
        if preset.api_key_env:
            monkeypatch.delenv(preset.api_key_env, raising=False)
    return Line(file, {"COLUMNS": "200", "GROQ_API_KEY": "gsk-secret-0123456789"})


class TestListing:
    def test_every_connection_is_listed_with_what_it_lacks(self, line: Line) -> None:
        listed = {each["name"]: each for each in line.json()}
        assert {name: each["lacks"] for name, each in listed.items()} == {
            "plain": [],
            "groq": [],
            "claude": ["the variable ANTHROPIC_API_KEY", "the file /nowhere/ca.pem"],
            "cloud": ["the variable AZURE_OPENAI_API_KEY", "the variable PROXY_LOGIN"],
        }
        assert listed["groq"]["key_set"] is True
        assert listed["plain"]["key_set"] is None

    def test_no_key_is_shown(self, line: Line) -> None:
        for arguments in ((), ("--json",), ("show", "groq"), ("show", "groq", "--json")):
            assert "gsk-secret" not in line.out(*arguments)

    def test_the_table_says_where_keys_are_and_what_lanes_are_by(self, line: Line) -> None:
        rows = {row.split()[0]: row for row in line.out().splitlines()}
        assert "GROQ_API_KEY, set" in rows["groq"]
        assert "credential, model" in rows["groq"]
        assert "ANTHROPIC_API_KEY, not set" in rows["claude"]
        assert "https://x.openai.azure.com" in rows["cloud"]

    def test_credentials_of_the_cloud_need_their_extra(
        self, line: Line, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        line.file.write_text('[connections.b]\nprovider = "bedrock"\nregion = "us-east-1"\n')
        (found,) = line.json()
        assert (found["auth"], found["lacks"]) == ("sigv4", [])
        monkeypatch.setattr("fairlane.cli.operate.connection_views.is_installed", lambda _: False)
        assert line.json()[0]["lacks"] == ["fairlane[bedrock]"]

    def test_neither_redis_nor_a_scheduler_is_needed(self, line: Line) -> None:
        line.environment["FAIRLANE_REDIS__URL"] = "redis://127.0.0.1:1/0"
        assert line.json()


class TestProviders:
    def test_known_providers_are_listed_with_what_they_need(self, line: Line) -> None:
        listed = {each["provider"]: each for each in line.json("--providers")}
        assert list(listed) == list(PROVIDERS)
        assert listed["groq"]["needs"] == ["GROQ_API_KEY"]
        assert listed["bedrock"]["needs"] == ["region", "AWS credentials", "fairlane[bedrock]"]
        assert listed["vertex"]["needs"] == ["region", "project", "Google credentials", "fairlane[vertex]"]
        assert listed["azure_openai"]["needs"] == ["base_url", "AZURE_OPENAI_API_KEY"]
        assert listed["ollama"]["needs"] == []
        assert listed["cerebras"]["charge"] == "reserved"

    def test_they_are_listed_where_no_connection_is_configured(self, line: Line) -> None:
        line.file.write_text("")
        result = line()
        assert result.exit_code == 0
        assert "no connection is configured" in result.stderr
        assert len(result.stdout.splitlines()) == 1 + len(PROVIDERS)
        assert [each["provider"] for each in line.json()] == list(PROVIDERS)

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_the_lines_for_a_provider_are_a_valid_configuration(
        self, line: Line, provider: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "made.toml"
        file.write_text(line.out("init", provider, "--name", "mine"), encoding="utf-8")
        (made,) = load_settings(file, {}).connections.values()
        assert made.provider == provider
        assert list(tomllib.loads(file.read_text())["connections"]) == ["mine"]

    def test_lines_for_an_unknown_provider_are_refused(self, line: Line) -> None:
        assert "Did you mean 'groq'?" in line.refused("init", "gorq")

    @pytest.mark.parametrize("name", ["a b", "a\n[redis]", "é", "a" * 65])
    def test_lines_with_a_name_that_the_settings_refuse_are_refused(self, line: Line, name: str) -> None:
        assert "no connection may have this name" in line.refused("init", "groq", "--name", name)


class TestShowing:
    def test_one_connection_is_shown_with_all_that_is_known(self, line: Line) -> None:
        shown = line.out("show", "cloud")
        for said in ("charge = reserved", "x-team", "http://proxy:3128", "overloaded", "api-key"):
            assert said in shown

    def test_lane_settings_are_part_of_a_connections_limits(self, line: Line) -> None:
        assert line.json("show", "claude")["limits"] == {"tokens_per_minute": 1000}

    def test_one_that_is_not_there_is_reported_with_those_that_are(self, line: Line) -> None:
        for command in ("show", "test"):
            assert "Configured: plain, groq, claude, cloud" in line.refused(command, "nobody")


Ask = Callable[..., Result]


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What probes were started with; each reports success."""
    started: list[list[str]] = []

    def report(arguments: list[str], _: dict[str, str]) -> dict[str, Any]:
        started.append(arguments)
        return REPORT

    monkeypatch.setattr("fairlane.cli.operate.connections.run_probe", report)
    return started


class TestTrying:
    def test_the_model_of_its_first_lane_is_asked(self, line: Line, probes: list[list[str]]) -> None:
        line.out("test", "plain")
        assert probes == [["--model=small", "--", "plain"]]

    def test_all_options_reach_the_probe(self, line: Line, probes: list[list[str]]) -> None:
        line.out(
            "test", "groq", "-m", "m", "--prompt", "-hi", "--max-tokens", "9", "--whole", "--timeout", "2"
        )
        assert probes == [
            ["--model=m", "--prompt=-hi", "--max-tokens=9", "--timeout=2.0", "--stream=no", "--", "groq"]
        ]

    def test_without_a_lane_the_model_must_be_given(self, line: Line, probes: list[list[str]]) -> None:
        assert "--model MODEL" in line.refused("test", "groq")
        assert probes == []

    def test_what_was_learned_is_printed(self, line: Line, probes: list[list[str]]) -> None:
        shown = line.out("test", "plain")
        for said in (
            "an answer, HTTP 200",
            "1,234 ms, the first of 4 pieces after 56 ms",
            "Hello there.",
            "8 input, 3 output tokens",
            "like openai: recognized by the host",
            "600 requests/min, 599 left, renewed in 100 ms",
            'charge = "reserved" would fit',
        ):
            assert said in shown
        assert line.json("test", "plain") == REPORT
        assert len(probes) == 2

    def test_a_call_that_got_no_answer_ends_with_1(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        failed = {name: value for name, value in REPORT.items() if name not in ("output", "usage")} | {
            "outcome": "AccessDenied",
            "status": 401,
            "message": "Incorrect API key provided.",
        }
        monkeypatch.setattr("fairlane.cli.operate.connections.run_probe", lambda *_: failed)
        result = line("test", "plain")
        assert result.exit_code == 1
        assert "Incorrect API key provided." in result.stdout

    def test_a_call_that_could_not_be_made_ends_with_2(
        self, line: Line, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any) -> dict[str, Any]:
            raise ProbeRefusedError("the variable is not set")

        monkeypatch.setattr("fairlane.cli.operate.connections.run_probe", refuse)
        assert "the variable is not set" in line.refused("test", "plain")


class TestWords:
    @pytest.mark.parametrize(
        ("changes", "name", "said"),
        [
            ({"retry_after_ms": 55_800}, "Retry-After", "55.8 s"),
            ({"retry_after_ms": 20}, "Retry-After", "20 ms"),
            ({"first_piece_ms": None}, "latency", "1,234 ms"),
            ({"usage": dict.fromkeys(REPORT["usage"])}, "usage", "not reported"),
            ({"charge": {"charge": "used", "output_factor": 5.0}}, "charge", "used, output tokens 5 times"),
            (
                {"limits": {"dialect": None, "known_by": None, "axes": {}, "exhausted": None}},
                "rate limits",
                "in no header",
            ),
            (
                {"limits": REPORT["limits"] | {"exhausted": "tokens"}},
                "used up",
                "tokens",
            ),
        ],
    )
    def test_each_part_is_reported(self, changes: dict[str, Any], name: str, said: str) -> None:
        assert dict(probe_fields(REPORT | changes))[name] == said

    def test_only_an_answer_is_a_success(self) -> None:
        assert succeeded(REPORT)
        assert not succeeded(REPORT | {"outcome": "RateLimited"})

"""A probe is one call of a connection, reported as it went; its report has no secret."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from fairlane.config.loader import load_secrets
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError
from fairlane.testing import Faults, ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread
from fairlane_workers.probe.probe import Question, main, probe

KEY = "sk-live-0123456789abcdef"
MODELS = {
    "fast": SimulatedModel(latency_ms=1, output="echo", headers="full", tokens_per_minute=600_000),
    "slow": SimulatedModel(latency_ms=1, headers="full", requests_per_minute=1),
    "grouped": SimulatedModel(latency_ms=1, headers="full", tokens_per_minute=600_000, header_style="azure"),
    "plain": SimulatedModel(latency_ms=1),
    "reasons": SimulatedModel(latency_ms=1, reasoning=True),
    "broke": SimulatedModel(status_always="insufficient_quota"),
    "stuck": SimulatedModel(faults=Faults(hang=1.0)),
    "torn": SimulatedModel(latency_ms=1, faults=Faults(cut_stream=1.0)),
}


@pytest.fixture(scope="module")
def served() -> Iterator[ServedProvider]:
    with serve_in_thread(SimulatorConfig(models=MODELS, api_key=SecretStr(KEY))) as provider:
        yield provider


def report_of(served: ServedProvider, model: str = "fast", /, **asked: Any) -> dict[str, Any]:
    """What a call shows; ``given`` are fields of its connection, the rest is the question's."""
    given = asked.pop("given", {})
    there = {"protocol": "openai", "base_url": served.base_url, "api_key_env": "SIM_KEY"} | given
    settings = Settings.model_validate({"connections": {"sim": there}})
    secrets = load_secrets(settings, {"SIM_KEY": KEY})
    shown = asyncio.run(probe(settings, secrets, "sim", Question(model, **asked)))
    assert KEY not in json.dumps(shown)
    return shown


def test_an_answer_is_reported_with_its_times_and_usage(served: ServedProvider) -> None:
    shown = report_of(served, prompt="hello there")
    assert (shown["outcome"], shown["status"], shown["output"]) == ("Success", 200, "hello there")
    assert shown["usage"]["input_tokens"] > 0
    assert 0 <= shown["first_piece_ms"] <= shown["latency_ms"]


def test_a_reasoning_model_is_called_with_the_bound_that_it_takes(served: ServedProvider) -> None:
    shown = report_of(served, "reasons")
    assert (shown["outcome"], shown["left_out"]) == ("Success", [])


def test_a_whole_answer_has_no_first_piece(served: ServedProvider) -> None:
    shown = report_of(served, stream=False)
    assert (shown["streamed"], shown["first_piece_ms"]) == (False, None)
    assert report_of(served, given={"stream": False})["streamed"] is False


@pytest.mark.parametrize(
    ("given", "model", "dialect", "known_by"),
    [
        ({}, "fast", "generic", "host"),
        ({"provider": "openai"}, "fast", "openai", "provider"),
        ({"limit_headers": "groq"}, "fast", "groq", "limit_headers"),
        ({}, "grouped", "azure", "headers"),
        ({}, "plain", None, None),
    ],
)
def test_the_dialect_of_limit_headers_is_reported_with_its_source(
    served: ServedProvider, given: dict[str, str], model: str, dialect: str | None, known_by: str | None
) -> None:
    limits = report_of(served, model, given=given)["limits"]
    assert (limits["dialect"], limits["known_by"]) == (dialect, known_by)
    assert bool(limits["headers"]) is (dialect is not None)


def test_the_charge_model_is_held_against_what_is_left(served: ServedProvider) -> None:
    assert report_of(served)["charge"]["verdict"] == "agrees"
    assert report_of(served, given={"charge": "reserved"})["charge"]["verdict"] == "differs"
    assert report_of(served, max_tokens=0)["charge"]["verdict"] == "unknown"


def test_a_rate_limit_shows_its_axis_and_how_long_it_lasts(served: ServedProvider) -> None:
    served.reset()
    report_of(served, "slow")
    shown = report_of(served, "slow")
    assert shown["outcome"] == "RateLimited"
    assert shown["limits"]["exhausted"] == "requests"
    assert shown["retry_after_ms"] > 10_000
    assert "verdict" not in shown["charge"]


@pytest.mark.parametrize(
    ("model", "outcome", "said"),
    [
        ("broke", "AccessDenied", "quota"),
        ("nothing", "PermanentFailure", "does not exist"),
        ("stuck", "TimedOut", "within 0.3 s"),
        ("torn", "InvalidResponse", "could not be read"),
    ],
)
def test_a_failure_shows_its_class_and_the_providers_words(
    served: ServedProvider, model: str, outcome: str, said: str
) -> None:
    shown = report_of(served, model, timeout_s=0.3 if model == "stuck" else 10.0, stream=True)
    assert shown["outcome"] == outcome
    assert said in shown["message"]


def test_an_endpoint_without_a_bound_in_its_templates_is_called_without(served: ServedProvider) -> None:
    body = {"model": "{{ model }}", "messages": "{{ messages }}"}
    endpoint = {"path": "/chat/completions", "body": body, "output": "choices[0].message.content"}
    shown = report_of(served, given={"protocol": "http", "endpoint": endpoint})
    assert shown["outcome"] == "Success"


def test_a_server_that_is_not_there_is_reported_so(served: ServedProvider) -> None:
    shown = report_of(served, given={"base_url": "http://127.0.0.1:1/v1"})
    assert (shown["outcome"], shown["status"]) == ("NetworkFailure", None)
    assert "cannot connect to 127.0.0.1:1" in shown["message"]


def test_the_lane_is_reported_with_what_its_calls_share(served: ServedProvider) -> None:
    shown = report_of(served)
    assert shown["lane"] == "sim:fast"
    assert all(part in shown["shared_by"] for part in ("credential=", "base_url=", "model=fast"))


@pytest.mark.parametrize(("name", "field"), [("nobody", "NAME"), ("sim", "connections.sim.api_key_env")])
def test_a_call_that_cannot_be_made_is_refused(name: str, field: str) -> None:
    there = {"provider": "groq", "api_key_env": "SIM_KEY"}
    settings = Settings.model_validate({"connections": {"sim": there}})
    with pytest.raises(ConfigurationError) as caught:
        asyncio.run(probe(settings, load_secrets(settings, {}), name, Question("m")))
    assert caught.value.field == field


def test_the_process_prints_its_report_or_one_line(
    served: ServedProvider, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"PROVIDER": "openai", "BASE_URL": served.base_url, "API_KEY_ENV": "SIM_KEY"}.items():
        monkeypatch.setenv(f"FAIRLANE_CONNECTIONS__SIM__{name}", value)
    asked = ["--model=fast", "--prompt=-n", "--stream=no", "--max-tokens=9", "--timeout=5", "--", "sim"]
    assert main(asked) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    monkeypatch.setenv("SIM_KEY", KEY)
    assert main(asked) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["outcome"], report["output"]) == ("Success", "-n")
    assert main(["--model=reasons", "--", "sim"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "Success"

"""Six environment variables give a run's defaults; an error in one names it, at once."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import pytest
from redis import Redis

from fairlane import Client, Settings
from fairlane.client.submitting.arguments import check_max_concurrent
from fairlane.client.submitting.submission import build_spec
from fairlane.config.evaluation_environment import (
    NAMES,
    EvaluationDefaults,
    evaluation_defaults,
)
from fairlane.core.errors import ConfigurationError, FairlaneError, SubmissionError
from fairlane.evaluators.builders import agent, criterion, exact_match
from fairlane.model.decision import RetryPolicy
from fairlane.model.evaluators import Agent
from fairlane.model.run import RunSpec
from tests.support.stage import Stage

ALL = {
    "MAX_CONCURRENT_LLM_CALLS": "5",
    "RETRY_INITIAL_DELAY": "0.5",
    "RETRY_MAX_DELAY": "30",
    "RETRY_MAX_ATTEMPTS": "4",
    "BATCHING_ENABLED": "true",
    "LLM_CALL_TIMEOUT": "90",
}


def judging(batching: bool | None = None) -> Agent:
    made = agent("ethics", "sim:judge", "{{ output }}", [criterion("harm", "Does it harm?")], batching)
    assert isinstance(made, Agent)
    return made


def built(**options: Any) -> RunSpec:
    given = {"prompt": "{{ q }}", "model": "sim:fast", **options}
    return build_spec("r1", "search", 1, **given)


def test_fr_003_the_six_names_are_defaults() -> None:
    policy = RetryPolicy(max_attempts=4, initial_delay=0.5, max_delay=30.0, jitter="added")
    assert set(ALL) == set(NAMES)
    assert evaluation_defaults(ALL) == EvaluationDefaults(5, policy, batching=True, timeout=90.0)


def test_an_environment_that_says_nothing_leaves_everything_as_it_is() -> None:
    assert evaluation_defaults({}) == evaluation_defaults(dict.fromkeys(NAMES, " ")) == EvaluationDefaults()
    assert EvaluationDefaults().fill_in({"timeout": None, "name": "n"}) == {"name": "n"}


@pytest.mark.parametrize("name", ["RETRY_INITIAL_DELAY", "RETRY_MAX_DELAY", "RETRY_MAX_ATTEMPTS"])
def test_any_retry_variable_selects_the_formula_with_added_jitter(name: str) -> None:
    policy = evaluation_defaults({name: "2"}).retry
    assert policy is not None
    assert policy.jitter == "added"
    assert policy.model_dump() == {**RetryPolicy(jitter="added").model_dump(), name[6:].lower(): 2}


def test_what_a_submission_gives_wins_over_the_environment() -> None:
    defaults, own = evaluation_defaults(ALL), RetryPolicy(max_attempts=1)
    given = {"max_concurrent": 2, "retry": own, "timeout": 7.0, "evaluators": [judging(batching=False)]}
    assert defaults.fill_in(given) == given
    filled = defaults.fill_in({"evaluators": (judging(), exact_match("answer")), "max_concurrent": None})
    assert filled["evaluators"] == [judging(batching=True), exact_match("answer")]
    assert (filled["max_concurrent"], filled["retry"], filled["timeout"]) == (5, defaults.retry, 90.0)


@pytest.mark.parametrize("text", ["0", "-3"])
def test_fr_001_a_limit_below_one_raises_at_once_a_value_error_with_this_text(text: str) -> None:
    with pytest.raises(ValueError, match="MAX_CONCURRENT_LLM_CALLS") as raised:
        evaluation_defaults({"MAX_CONCURRENT_LLM_CALLS": text})
    assert str(raised.value) == f"MAX_CONCURRENT_LLM_CALLS must be >= 1, got {text}"
    assert isinstance(raised.value, ConfigurationError)
    assert (raised.value.field, raised.value.value) == ("MAX_CONCURRENT_LLM_CALLS", int(text))


@pytest.mark.parametrize("value", [0, -1])
def test_an_argument_max_concurrent_below_one_raises_at_once(value: int) -> None:
    filled = evaluation_defaults(ALL).fill_in({"max_concurrent": value})
    for check in (lambda: check_max_concurrent(value), lambda: built(**filled)):
        with pytest.raises(ValueError, match="max_concurrent") as raised:
            check()
        assert str(raised.value) == f"max_concurrent must be >= 1, got {value}"
        assert isinstance(raised.value, SubmissionError)
        assert isinstance(raised.value, FairlaneError)


def test_an_argument_max_concurrent_is_a_whole_number() -> None:
    for right in (None, 1, 500):
        check_max_concurrent(right)
        assert built(max_concurrent=right).bounds.max_concurrent == right
    for wrong in (True, 2.0, "5", math.nan):
        with pytest.raises(SubmissionError, match="max_concurrent: is no whole number"):
            check_max_concurrent(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({"MAX_CONCURRENT_LLM_CALLS": "five"}, "is no whole number (got 'five')"),
        ({"RETRY_MAX_ATTEMPTS": "1000"}, "less than or equal to 100 (got '1000')"),
        ({"RETRY_INITIAL_DELAY": "soon"}, "is no number of seconds (got 'soon')"),
        ({"RETRY_MAX_DELAY": "nan"}, "is no number of seconds (got 'nan')"),
        ({"RETRY_MAX_DELAY": "0.5"}, "max_delay (0.5) is below initial_delay (1) (got '0.5')"),
        ({"RETRY_INITIAL_DELAY": "61"}, "max_delay (60) is below initial_delay (61) (got '61')"),
        ({"BATCHING_ENABLED": "maybe"}, "is neither true nor false (got 'maybe')"),
        ({"LLM_CALL_TIMEOUT": "0"}, "leaves a call no time (got '0')"),
        ({"LLM_CALL_TIMEOUT": "-1"}, "is no number of seconds (got '-1')"),
    ],
)
def test_a_wrong_value_is_reported_with_its_variable_and_a_remedy(
    variables: dict[str, str], shown: str
) -> None:
    (name,) = variables
    with pytest.raises(ConfigurationError) as raised:
        evaluation_defaults(variables)
    assert str(raised.value).startswith(f"{name}: ")
    assert shown in str(raised.value)
    assert f"Set {name} to " in str(raised.value)


@pytest.mark.parametrize(("text", "meant"), [("1", True), ("Yes", True), ("FALSE", False), ("off", False)])
def test_batching_is_turned_on_and_off_in_words(text: str, meant: bool) -> None:
    assert evaluation_defaults({"BATCHING_ENABLED": text}).batching is meant


def test_the_profile_of_evaluations_bounds_the_calls_at_once_to_fifty_and_has_five_by_default() -> None:
    with pytest.raises(ConfigurationError, match="MAX_CONCURRENT_LLM_CALLS: must be <= 50"):
        evaluation_defaults({"MAX_CONCURRENT_LLM_CALLS": "51"}, bounded=True)
    assert evaluation_defaults({"MAX_CONCURRENT_LLM_CALLS": "50"}, bounded=True).max_concurrent == 50
    assert evaluation_defaults({}, bounded=True).max_concurrent == 5
    assert evaluation_defaults({"MAX_CONCURRENT_LLM_CALLS": "51"}).max_concurrent == 51


def test_a_client_with_that_profile_refuses_at_once_and_bounds_its_runs(
    fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.model_validate({"defaults": {"profile": "evaluation"}})
    stage = Stage(fake_redis)
    run = Client(settings=settings, redis=fake_redis).submit([{"q": 1}], "{{ q }}", model="sim:fast")
    assert run.spec is not None
    assert run.spec.bounds.max_concurrent == 5
    monkeypatch.setenv("MAX_CONCURRENT_LLM_CALLS", "51")
    with pytest.raises(ConfigurationError, match="1 to 50"):
        Client(settings=settings, redis=fake_redis)
    assert stage.client.submit([{"q": 1}], "{{ q }}", model="sim:fast").spec is not None


@pytest.mark.parametrize("role", ["fairlane_scheduler.__main__", "fairlane_workers.__main__"])
def test_roles_report_a_wrong_variable_at_their_start(
    role: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAX_CONCURRENT_LLM_CALLS", "0")
    assert import_module(role).main([]) == 2
    assert "MAX_CONCURRENT_LLM_CALLS must be >= 1, got 0" in capsys.readouterr().err

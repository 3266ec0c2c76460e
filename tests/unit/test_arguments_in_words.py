"""What is made in Python with a wrong argument says which field, which value and what to do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fairlane import RetryPolicy
from fairlane.config.connections.connection import Connection
from fairlane.config.sections import MetricsSettings
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"max_attempts": 0}, "RetryPolicy.max_attempts", "must be greater than or equal to 1 (got 0)"),
        ({"max_attempts": "three"}, "RetryPolicy.max_attempts", "Left out, it is 3."),
        ({"max_delay": 1.0, "initial_delay": 5.0}, "RetryPolicy", "max_delay (1) is below initial_delay (5)"),
        ({"max_atempts": 3}, "RetryPolicy.max_atempts", "Known are initial_delay, jitter, max_attempts"),
        ({"jitter": "some"}, "RetryPolicy.jitter", "must be 'full' or 'added' (got 'some')"),
    ],
)
def test_a_policy_names_its_field(arguments: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RetryPolicy(**arguments)
    assert caught.value.field == field
    assert said in str(caught.value)
    assert "pydantic" not in str(caught.value)
    assert str(copy.copy(caught.value)) == str(caught.value)


@pytest.mark.parametrize(
    ("made", "field", "said"),
    [
        (lambda: Settings(team="no such team!"), "Settings.team", "Team for which a client submits."),
        (lambda: Settings(redis={"url": "http://x"}), "Settings.redis.url", "must match pattern"),
        (lambda: MetricsSettings(host="[::]"), "MetricsSettings.host", "without brackets"),
        (lambda: MetricsSettings(worker_port=70_000), "MetricsSettings.worker_port", "Left out, it is 9480."),
        (lambda: Connection(**{"provider": "gorq"}), "Connection.provider", "Did you mean 'groq'?"),
    ],
)
def test_settings_name_their_fields(made: Any, field: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        made()
    assert caught.value.field == field
    assert said in str(caught.value)


def test_all_mistakes_are_listed() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RetryPolicy(max_attempts=0, max_rate_limits=0)
    assert len(str(caught.value).splitlines()) == 2
    assert "RetryPolicy.max_rate_limits" in str(caught.value)


def test_no_key_that_was_pasted_in_a_wrong_place_is_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Connection(
            protocol="openai",
            base_url="https://h/v1",
            api_key_env="sk-live-secret",
            api_key_file="sk-live-secret",
            headers={"Authorization": "Bearer sk-live-secret"},
        )
    assert "sk-live" not in str(caught.value)
    assert "api_key_env" in str(caught.value)


def test_documents_still_have_pydantic_s_error_with_every_place() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"redis": {"url": "http://x"}, "metrics": {"worker_port": -1}})
    assert [each["loc"] for each in caught.value.errors()] == [("redis", "url"), ("metrics", "worker_port")]


@given(st.dictionaries(st.sampled_from(list(RetryPolicy.model_fields)), st.from_type(object), max_size=3))
def test_any_argument_makes_a_policy_or_an_error_of_ours(arguments: dict[str, Any]) -> None:
    try:
        made: RetryPolicy | ConfigurationError = RetryPolicy(**arguments)
    except ConfigurationError as error:
        made = error
    if isinstance(made, ConfigurationError):
        assert made.field.startswith("RetryPolicy")
        assert made.remedy
    else:
        assert RetryPolicy.model_validate(made.model_dump()) == made

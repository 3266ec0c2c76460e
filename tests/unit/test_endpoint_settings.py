"""A connection's description of its endpoint: an error names its key before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlane.config.keys import all_keys, find_key
from fairlane.config.loader import load_settings
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError

LEAST: dict[str, Any] = {"body": {"prompt": "{{ prompt }}"}, "output": "text"}
POLLING = {"handle": "id", "status": "state", "done": ["ok"], "look": "/jobs/{{ handle }}"}


def settings(endpoint: dict[str, Any] | None, protocol: str = "http", **more: Any) -> Settings:
    described = {} if endpoint is None else {"endpoint": endpoint}
    connection = {"protocol": protocol, "base_url": "http://10.0.0.9:8000/api", **described, **more}
    return load_settings(environ={}, connections={"mine": connection})


def test_the_least_that_an_endpoint_needs_is_a_body_and_an_output() -> None:
    endpoint = settings(LEAST).connections["mine"].endpoint
    assert endpoint is not None
    assert (endpoint.method, endpoint.path, endpoint.stream, endpoint.polling) == ("POST", "", None, None)


def test_its_lane_is_the_server() -> None:
    assert settings(LEAST).lane_of("mine:whatever") == "http:10.0.0.9:8000"


@pytest.mark.parametrize(
    ("change", "key", "shown"),
    [
        ({"output": None}, "output", "is missing"),
        ({"output": "a..b"}, "output", "is no JMESPath"),
        ({"input_tokens": "]"}, "input_tokens", "is no JMESPath"),
        ({"body": '{"a": }'}, "body", "is not JSON"),
        ({"body": 7}, "body", "a table, or JSON as a text"),
        ({"body": {"a": {"b": ["{{ promt }}"]}}}, "body", "there is no variable 'promt' here"),
        ({"body": {"a": {"b": ["{{ prompt "]}}}, "body", "body.a.b[0]: line 1"),
        ({"body": {"a": "{% include 'x' %}"}}, "body", "body.a: line 1"),
        ({"body": None}, "body", "is missing"),
        ({"method": "GET"}, "body", "is not sent with GET"),
        ({"method": "DELETE"}, "method", "must be"),
        ({"path": "generate"}, "path", "begins with /"),
        ({"path": "/a b"}, "path", "cannot stand in a path"),
        ({"path": "/a/{{ row }}"}, "path", "there is no variable 'row' here"),
        ({"path": "/a/../b"}, "path", "dots alone"),
        ({"stream": {"delta": "text"}}, "stream", "how a stream ends"),
        ({"stream": {"delta": "text", "end": "x", "format": "xml"}}, "stream.format", "must be"),
        ({"stream": {"delta": "a b", "end": "x"}}, "stream.delta", "is no JMESPath"),
        (
            {"polling": {**POLLING, "look": "/jobs/{{ model }}"}},
            "polling.look",
            "there is no variable 'model' here",
        ),
        ({"polling": {**POLLING, "cancel": "x"}}, "polling.cancel", "begins with /"),
        ({"polling": {**POLLING, "done": []}}, "polling.done", "at least 1"),
        ({"polling": {**POLLING, "every_seconds": 0}}, "polling.every_seconds", "greater than or equal"),
        ({"polling": {**POLLING, "handel": "x"}}, "polling.handel", "'handle'"),
        ({"colour": "x"}, "colour", "There is no such key"),
    ],
)
def test_a_mistake_is_reported_with_its_key(change: dict[str, Any], key: str, shown: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings({**LEAST, **change})
    assert f"connections.mine.endpoint.{key}: " in str(caught.value)
    assert shown in str(caught.value)


def test_a_description_and_its_protocol_go_together() -> None:
    with pytest.raises(ConfigurationError, match=r"connections\.mine\.endpoint: is missing"):
        settings(None)
    with pytest.raises(ConfigurationError, match=r"connections\.mine\.endpoint: is not for protocol"):
        settings(LEAST, "openai")


def test_its_keys_are_known_one_by_one() -> None:
    paths = {".".join(key.path) for key in all_keys()}
    below = "connections.<name>.endpoint"
    assert {f"{below}.path", f"{below}.body", f"{below}.stream.delta", f"{below}.polling.look"} <= paths
    assert below not in paths
    assert find_key(["connections", "mine", "endpoint", "stream", "delta"]) is not None


def test_a_variable_reaches_into_the_description(tmp_path: Path) -> None:
    file = tmp_path / "fairlane.toml"
    file.write_text(
        """
        [connections.mine]
        protocol = "http"
        base_url = "http://10.0.0.9/api"
        [connections.mine.endpoint]
        output = "text"
        body = '''{"prompt": "{{ prompt }}", "n": "{{ params.n }}"}'''
        """,
        encoding="utf-8",
    )
    environ = {
        "FAIRLANE_CONNECTIONS__MINE__ENDPOINT__PATH": "/v2/generate",
        "FAIRLANE_CONNECTIONS__MINE__ENDPOINT__STREAM__DELTA": "delta",
        "FAIRLANE_CONNECTIONS__MINE__ENDPOINT__STREAM__END": "[DONE]",
    }
    endpoint = load_settings(file, environ=environ).connections["mine"].endpoint
    assert endpoint is not None
    assert endpoint.path == "/v2/generate"
    assert endpoint.stream is not None
    assert endpoint.stream.delta == "delta"


@pytest.mark.parametrize(("form", "sent"), [(True, "response_format"), ("tool", "tools")])
def test_a_form_of_judges_needs_a_template_that_sends_it(form: bool | str, sent: str) -> None:
    with pytest.raises(ConfigurationError, match=f"structured_output.*needs {sent}") as caught:
        settings(LEAST, structured_output=form)
    assert f"params.{sent}" in caught.value.remedy
    for body in ({"asked": f"{{{{ params.{sent} }}}}"}, {"all": "{{ params }}"}):
        assert settings({**LEAST, "body": body}, structured_output=form).connections["mine"].endpoint
    assert not settings(LEAST, structured_output=False).connections["mine"].structured

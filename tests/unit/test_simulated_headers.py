"""The simulated provider gives the same hints by the names of other vendors, with their traps."""

import httpx
import pytest

from fairlane.testing import ManualClock, SimulatedModel, SimulatorConfig, serve_in_thread
from fairlane.testing.provider.config import HeaderStyle
from fairlane.testing.provider.dialect import Dialect
from fairlane.testing.provider.headers import limit_headers, refusal_headers, retry_after_forms
from fairlane.testing.provider.limits import Axis, Level
from fairlane.testing.provider.protocols.anthropic_messages import AnthropicMessages
from fairlane.testing.provider.protocols.openai_chat import OpenAIChat

LEVELS: dict[Axis, Level] = {
    "requests": Level(90, 30, 1500),
    "tokens": Level(60_000, 600, 7660),
    "day": Level(14_400, 12_000, 3_600_000),
}


def test_a_protocol_has_names_of_its_own() -> None:
    for dialect in (OpenAIChat(), AnthropicMessages()):
        assert limit_headers("protocol", dialect, LEVELS, 0) == dialect.limit_headers(LEVELS, 0)


def test_groqs_requests_are_those_of_the_day() -> None:
    assert limit_headers("groq", OpenAIChat(), LEVELS, 0) == {
        "x-ratelimit-limit-requests": "14400",
        "x-ratelimit-remaining-requests": "12000",
        "x-ratelimit-reset-requests": "1h0m0s",
        "x-ratelimit-limit-tokens": "60000",
        "x-ratelimit-remaining-tokens": "600",
        "x-ratelimit-reset-tokens": "7.66s",
    }


def test_azure_counts_whole_seconds_and_names_its_periods() -> None:
    assert limit_headers("azure", OpenAIChat(), LEVELS, 0) == {
        "x-ms-region": "Simulated",
        "x-ratelimit-limit-requests": "15",
        "x-ratelimit-remaining-requests": "15",
        "x-ratelimit-reset-requests": "2",
        "x-ratelimit-renewalperiod-requests": "10",
        "x-ratelimit-limit-tokens": "60000",
        "x-ratelimit-remaining-tokens": "600",
        "x-ratelimit-reset-tokens": "8",
        "x-ratelimit-renewalperiod-tokens": "60",
    }


def test_together_tells_limits_a_second() -> None:
    assert limit_headers("together", OpenAIChat(), LEVELS, 0) == {
        "x-ratelimit-limit": "1.5",
        "x-ratelimit-remaining": "30",
        "x-ratelimit-reset": "2",
        "x-tokenlimit-limit": "1000",
        "x-tokenlimit-remaining": "600",
    }


def test_the_ietf_headers_tell_of_the_axis_with_the_least_left() -> None:
    assert limit_headers("ietf", OpenAIChat(), LEVELS, 0) == {
        "ratelimit-limit": "60000",
        "ratelimit-remaining": "600",
        "ratelimit-reset": "8",
        "ratelimit-policy": "60000;w=60",
    }
    day: dict[Axis, Level] = {"day": LEVELS["day"]}
    assert limit_headers("ietf", OpenAIChat(), day, 0)["ratelimit-policy"] == "14400;w=86400"


@pytest.mark.parametrize("style", ["groq", "together", "ietf"])
def test_what_is_not_limited_is_not_told(style: HeaderStyle) -> None:
    assert limit_headers(style, OpenAIChat(), {}, 0) == {}


@pytest.mark.parametrize(
    ("style", "dialect", "forms"),
    [
        ("protocol", AnthropicMessages(), ("seconds",)),
        ("azure", OpenAIChat(), ("milliseconds", "seconds")),
        ("groq", OpenAIChat(), ("seconds",)),
    ],
)
def test_each_style_writes_its_retry_after(
    style: HeaderStyle, dialect: Dialect, forms: tuple[str, ...]
) -> None:
    assert retry_after_forms(style, dialect) == forms


def test_a_token_refusal_of_azure_names_no_wait_although_there_is_one() -> None:
    told = {**limit_headers("azure", OpenAIChat(), LEVELS, 0), "retry-after": "45", "retry-after-ms": "45000"}
    refused = refusal_headers("azure", "tokens", told)
    changed = {name: value for name, value in refused.items() if told.get(name) != value}
    assert changed == {
        "x-ratelimit-type": "tokens",
        "retry-after": "1",
        "retry-after-ms": "0",
        "x-ratelimit-reset-tokens": "0",
    }
    assert refusal_headers("azure", "requests", told) == {**told, "x-ratelimit-type": "requests"}
    assert refusal_headers("protocol", "tokens", told) == told
    assert refusal_headers("azure", "tokens", {}) == {}


def test_a_style_is_spoken_over_http() -> None:
    model = SimulatedModel(
        latency_ms=0, tokens_per_minute=60, shape="window", header_style="azure", headers="full"
    )
    call = {"model": "fast", "messages": [{"role": "user", "content": "Q" * 80}]}
    with serve_in_thread(SimulatorConfig(models={"fast": model}), clock=ManualClock()) as served:
        answers = [httpx.post(f"{served.base_url}/chat/completions", json=call) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[0].headers["x-ratelimit-reset-tokens"] == "60"
    names = ("x-ratelimit-type", "x-ratelimit-reset-tokens", "retry-after", "retry-after-ms")
    assert [answers[1].headers[name] for name in names] == ["tokens", "0", "1", "0"]
    assert "tokens per min (TPM): Limit 60, Used 52, Requested 52." in answers[1].json()["error"]["message"]

"""The simulated provider writes rate-limit headers under the names of each vendor, with their traps."""

import httpx
import pytest

from fairlane.lab.simulator.config import HeaderStyle
from fairlane.lab.simulator.limits.admission import Axis, Level
from fairlane.lab.simulator.protocols.anthropic_messages import AnthropicMessages
from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat
from fairlane.lab.simulator.wire.dialect import Dialect
from fairlane.lab.simulator.wire.headers import limit_headers, rejection_headers, retry_after_forms
from fairlane.testing import ManualClock, SimulatedModel, SimulatorConfig, serve_in_thread

LEVELS: dict[Axis, Level] = {
    "requests": Level(90, 30, 1500),
    "tokens": Level(60_000, 600, 7660),
    "day": Level(14_400, 12_000, 3_600_000),
}


def test_the_style_protocol_uses_the_protocols_own_names() -> None:
    for dialect in (OpenAIChat(), AnthropicMessages()):
        assert limit_headers("protocol", dialect, LEVELS, 0) == dialect.limit_headers(LEVELS, 0)


def test_groqs_request_limit_is_that_of_the_day() -> None:
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


def test_together_reports_limits_per_second() -> None:
    assert limit_headers("together", OpenAIChat(), LEVELS, 0) == {
        "x-ratelimit-limit": "1.5",
        "x-ratelimit-remaining": "30",
        "x-ratelimit-reset": "2",
        "x-tokenlimit-limit": "1000",
        "x-tokenlimit-remaining": "600",
    }


def test_the_ietf_headers_report_the_axis_with_the_least_left() -> None:
    assert limit_headers("ietf", OpenAIChat(), LEVELS, 0) == {
        "ratelimit-limit": "60000",
        "ratelimit-remaining": "600",
        "ratelimit-reset": "8",
        "ratelimit-policy": "60000;w=60",
    }
    day: dict[Axis, Level] = {"day": LEVELS["day"]}
    assert limit_headers("ietf", OpenAIChat(), day, 0)["ratelimit-policy"] == "14400;w=86400"


@pytest.mark.parametrize("style", ["groq", "together", "ietf"])
def test_an_unlimited_axis_has_no_headers(style: HeaderStyle) -> None:
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


def test_azures_rejection_by_tokens_reports_no_wait_although_there_is_one() -> None:
    sent = {**limit_headers("azure", OpenAIChat(), LEVELS, 0), "retry-after": "45", "retry-after-ms": "45000"}
    rejected = rejection_headers("azure", "tokens", sent)
    changed = {name: value for name, value in rejected.items() if sent.get(name) != value}
    assert changed == {
        "x-ratelimit-type": "tokens",
        "retry-after": "1",
        "retry-after-ms": "0",
        "x-ratelimit-reset-tokens": "0",
    }
    assert rejection_headers("azure", "requests", sent) == {**sent, "x-ratelimit-type": "requests"}
    assert rejection_headers("protocol", "tokens", sent) == sent
    assert rejection_headers("azure", "tokens", {}) == {}


def test_answers_over_http_carry_the_headers_of_a_style() -> None:
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

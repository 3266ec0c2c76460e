"""Calls through LiteLLM's SDK end as our own do: one attempt each, the same outcomes, the key kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from fairlane.config.connections.connection import ANYWHERE, Connection
from fairlane.core.clock import ManualClock
from fairlane.core.errors import ConfigurationError
from fairlane.model.outcome import (
    AccessDenied,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
)
from fairlane.testing import ServedProvider, SimulatorConfig, serve_in_thread
from fairlane_workers.providers import litellm_provider
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.litellm_provider import LiteLLMProvider
from fairlane_workers.providers.registry import build_provider
from tests.support.provider_calls import KEY, streamed_or_not
from tests.support.scripted_server import Fault, scripted_server

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:pydantic")


def connection(url: str = "") -> Connection:
    given = {"protocol": "litellm", "limit_headers": "openai"} | ({"base_url": f"{url}/v1"} if url else {})
    return Connection.model_validate(given)


def ask(stream: bool = False, timeout_s: float = 10.0, **params: Any) -> Request:
    messages = [{"role": "user", "content": "hi"}]
    return Request("openai/m-1", messages, params, stream, timeout_s, 1 << 20)


def called(requests: Sequence[Request], **model: Any) -> tuple[list[Outcome], ServedProvider, str]:
    """The outcomes, who served, and what a listener heard."""
    settings = {"latency_ms": 1.0, "output": "echo", **model}
    config = SimulatorConfig.model_validate({"models": {"m-1": settings}, "api_key": KEY})
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    with serve_in_thread(config) as served:

        async def scenario() -> list[Outcome]:
            made = connection(served.url)
            provider = build_provider("c", made, SecretStr(KEY), clock=ManualClock())
            try:
                return [await provider.call(each, listen) for each in requests]
            finally:
                await provider.aclose()

        outcomes = asyncio.run(scenario())
        return outcomes, served, "".join(heard)


@streamed_or_not
def test_an_answer_is_a_success_with_usage_and_hints(stream: bool) -> None:
    limits = {"requests_per_minute": 600, "headers": "full"}
    (outcome,), _, heard = called([ask(stream)], **limits)
    assert isinstance(outcome, Success)
    assert (outcome.output, heard, outcome.finish_reason) == ("hi", "hi", "stop")
    assert outcome.usage.input_tokens
    assert outcome.usage.output_tokens
    assert outcome.hints is not None
    assert outcome.hints.axes["requests"].limit == 600


def test_closing_a_provider_leaves_the_clients_of_others_and_later_ones_open() -> None:
    config = SimulatorConfig.model_validate({"models": {"m-1": {"latency_ms": 1.0}}, "api_key": KEY})
    with serve_in_thread(config) as served:

        def made() -> LiteLLMProvider:
            provider = build_provider("c", connection(served.url), SecretStr(KEY), clock=ManualClock())
            assert isinstance(provider, LiteLLMProvider)
            return provider

        async def scenario() -> list[Outcome]:
            first, second = made(), made()
            outcomes = [await first.call(ask()), await second.call(ask())]
            await first.aclose()
            outcomes.append(await second.call(ask()))
            await second.aclose()
            later = made()
            outcomes.append(await later.call(ask()))
            await later.aclose()
            return outcomes

        assert [type(each) for each in asyncio.run(scenario())] == [Success] * 4


@streamed_or_not
@pytest.mark.parametrize(
    ("status", "expected", "reason"),
    [
        (400, PermanentFailure, None),
        (401, AccessDenied, "auth"),
        (404, PermanentFailure, None),
        (429, RateLimited, None),
        ("insufficient_quota", AccessDenied, "quota"),
        (500, ServerError, None),
        (503, Overloaded, None),
    ],
)
def test_a_refusal_has_its_outcome_after_one_request(
    stream: bool, status: int | str, expected: type, reason: str | None
) -> None:
    config = SimulatorConfig.model_validate({"models": {"m-1": {"status_always": status}}, "api_key": KEY})
    with serve_in_thread(config) as served:

        async def scenario() -> Outcome:
            provider = build_provider("c", connection(served.url), SecretStr(KEY), clock=ManualClock())
            try:
                return await provider.call(ask(stream))
            finally:
                await provider.aclose()

        outcome = asyncio.run(scenario())
        assert served.stats().models["m-1"].requests == 1, "its own retries are off"
    assert type(outcome) is expected
    assert getattr(outcome, "reason", None) == reason
    assert KEY not in repr(outcome)


@streamed_or_not
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("error_503", Overloaded),
        ("error_in_stream", Overloaded),
        ("reset", NetworkFailure),
        ("hang", TimedOut),
        ("malformed", InvalidResponse),
        ("cut_stream", NetworkFailure),
    ],
)
def test_every_fault_has_its_outcome(stream: bool, fault: str, expected: type) -> None:
    timeout_s = 0.5 if fault == "hang" else 10.0
    (outcome,), _, _ = called([ask(stream, timeout_s)], faults={fault: 1.0})
    assert type(outcome) is expected


@pytest.mark.parametrize("listens", [True, False])
def test_it_says_whether_a_lost_call_was_sent(listens: bool) -> None:
    """A budget counts what was sent, since the provider may have charged for it."""

    async def scenario() -> tuple[Outcome, int]:
        async with scripted_server([[Fault.RESET]]) as server:
            url = server.url if listens else "http://127.0.0.1:1"
            provider = build_provider("c", connection(url), SecretStr(KEY), clock=ManualClock())
            try:
                return await provider.call(ask()), len(server.received)
            finally:
                await provider.aclose()

    outcome, received = asyncio.run(scenario())
    assert isinstance(outcome, NetworkFailure)
    assert (outcome.sent, received > 0) == (listens, listens)


def test_a_retry_after_is_read_from_what_litellm_wraps() -> None:
    (first, second), _, _ = called([ask(), ask()], requests_per_minute=6, headers="full")
    assert isinstance(first, Success)
    assert isinstance(second, RateLimited)
    assert second.retry_after_ms is not None
    assert 8_000 < second.retry_after_ms <= 11_000


def test_without_an_address_litellm_knows_where() -> None:
    assert connection().base_url == ANYWHERE
    assert connection("http://127.0.0.1:9").base_url == "http://127.0.0.1:9/v1"


def test_where_it_is_not_installed_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm_provider, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"fairlane\[litellm\]"):
        build_provider("c", connection(), None)


def test_the_key_is_in_no_text_form() -> None:
    assert KEY not in repr(build_provider("c", connection(), SecretStr(KEY)))

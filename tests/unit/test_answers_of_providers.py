"""What providers really answer is read as what it means, each answer with the preset of its own provider.

A preset may say what a status means there. The words of an answer say more than that.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.config.connections.presets import PROVIDERS, preset_of
from fairlane.model.decision import RetryPolicy, decide
from fairlane.model.job import Claim
from fairlane.model.outcome import AccessDenied, Outcome, PermanentFailure, RateLimited
from tests.support.classified import answer_at
from tests.support.provider_presets import connection

NOW_MS = 1_796_000_000_000
ANSWERS = Path(__file__).with_name("answers_of_providers.jsonl")
"""Published answers: provider, status, headers, body, and what each means."""

SHARES = {"lane_scope": "connection"}
"""Several models share a lane: a 403 is then one of its request, unless its words say more."""

SPENT = [
    "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
    "You have reached your specified workspace API usage limits.",
    "You've exceeded your monthly spending limit",
    "You have hit your organization spend cap",
    "You have run out of credits or need a Grok subscription.",
    "The free tier of the model has been exhausted. If you wish to continue, pay.",
    "Your credits have been exhausted",
]


def published() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]


def meant(outcome: Outcome) -> str:
    """Its class, and what it says further of the lane or the row."""
    words = [type(outcome).__name__]
    if isinstance(outcome, AccessDenied):
        words.append(outcome.reason)
    if isinstance(outcome, RateLimited) and outcome.hints and outcome.hints.exhausted:
        words.append(outcome.hints.exhausted)
    words += [name for name in ("content", "doubtful", "of_proxy") if getattr(outcome, name, False)]
    return " ".join(words)


def answered(provider: str, status: int, message: str, **settings: Any) -> Outcome:
    body = json.dumps({"error": {"message": message}}).encode()
    return answer_at(connection(provider, **settings), status, {}, body, now_ms=NOW_MS)


@pytest.mark.parametrize("case", published(), ids=lambda case: f"{case['provider']}-{case['status']}")
def test_a_published_answer_means_the_same_with_its_providers_preset(case: dict[str, Any]) -> None:
    body = json.dumps(case["body"]).encode()
    made = connection(case["provider"])
    assert meant(answer_at(made, case["status"], case["headers"], body, now_ms=NOW_MS)) == case["means"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("settings", [{}, SHARES], ids=["its lanes", "one lane"])
@pytest.mark.parametrize("message", SPENT)
def test_spent_money_is_known_by_its_words_at_every_provider(
    provider: str, settings: dict[str, Any], message: str
) -> None:
    preset = preset_of(provider)
    assert preset is not None
    for status in (400, 403, 429, *preset.statuses):
        assert meant(answered(provider, status, message, **settings)) == "AccessDenied quota"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "message",
    ["Key limit exceeded (monthly limit). Manage it here", "You've reached your weekly usage limit"],
)
def test_a_used_up_period_holds_the_lane_at_every_provider(provider: str, message: str) -> None:
    assert meant(answered(provider, 403, message)) == "RateLimited day"


def test_only_the_operators_own_map_goes_before_an_answers_words() -> None:
    spent = "Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys"
    assert meant(answered("openrouter", 403, spent)) == "AccessDenied quota"
    assert meant(answered("openrouter", 403, "Forbidden")) == "PermanentFailure"
    assert meant(answered("openrouter", 403, spent, error_map={"403": "permanent"})) == "PermanentFailure"


@given(
    provider=st.sampled_from(PROVIDERS),
    asked=st.integers(1000, 10**6),
    affords=st.integers(0, 10**5),
)
def test_more_tokens_than_the_credits_pay_for_are_the_requests_fault(
    provider: str, asked: int, affords: int
) -> None:
    message = (
        "This request requires more credits, or fewer max_tokens. "
        f"You requested up to {asked} tokens, but can only afford {affords}."
    )
    outcome = answered(provider, 402, message)
    if affords < 16:
        assert meant(outcome) == "AccessDenied quota"
        return
    assert isinstance(outcome, PermanentFailure)
    assert f"set max_tokens to {affords} or less" in outcome.message
    assert not outcome.content


def test_requests_that_the_credits_do_not_pay_for_are_rejected_alike() -> None:
    """So five of them end a run's calls to the model, although less is left each time."""
    refusals = set()
    for left in (30104, 29999, 512):
        message = f"This request requires more credits, or fewer max_tokens. You can only afford {left}."
        outcome = answered("openrouter", 402, message)
        assert isinstance(outcome, PermanentFailure)
        refusals.add(decide(outcome, Claim(0, 0, 0), RetryPolicy(), random.Random(0)).feedback.refusal)
    assert len(refusals) == 1
    assert refusals != {""}

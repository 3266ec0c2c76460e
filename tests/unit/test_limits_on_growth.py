"""Rejections for how fast a rate has grown are recognised, and those for the rate itself are not."""

from __future__ import annotations

import json

import pytest

from fairlane.model.hints import Hints
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.rate_limit_names import limits_growth

ANTHROPIC = (
    "This request would exceed your organization's maximum usage increase rate for input tokens per minute. "
    "Please scale up your input tokens usage more gradually to stay within the acceleration limit."
)
FIREWORKS = "Request rate limited. Ensure your workload does not double faster than once per 30 minutes."


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ((), ANTHROPIC),
        ((), FIREWORKS),
        (("limit_burst_rate",), None),
        ((), "Request rate increased too quickly. To ensure system stability, please adjust your client."),
        ((), "Your traffic has grown too fast, slow down"),
    ],
)
def test_a_limit_on_growth_is_recognised(kinds: tuple[str, ...], message: str | None) -> None:
    assert limits_growth(ErrorBody(kinds, message))


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached for requests per min (RPM): Limit 3, Used 3",
        "To increase your rate limit, contact sales",
        "You have exceeded your current quota, please increase your plan",
        "Too many requests: calls came too quickly",
        None,
    ],
)
def test_other_rate_limits_are_not_limits_on_growth(message: str | None) -> None:
    assert not limits_growth(ErrorBody(("rate_limit_exceeded",), message))


def test_the_hints_carry_it_as_what_was_exhausted() -> None:
    hints = Hints(exhausted="growth")
    assert hints
    assert json.loads(hints.to_json()) == {"exhausted": "growth"}

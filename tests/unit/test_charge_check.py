"""What one answer shows of how a provider charges tokens."""

from __future__ import annotations

import pytest

from fairlane.model.hints import AxisHint
from fairlane.model.lane import LaneLimits
from fairlane.model.tokens import Usage
from fairlane_workers.probe.probe import check_charge

USAGE = Usage(10, 20)  # 30 used, and with 256 of max_tokens 266 reserved


@pytest.mark.parametrize(
    ("charge", "left", "verdict"),
    [
        ("used", 9_970, "agrees"),
        ("used", 9_734, "differs"),
        ("reserved", 9_734, "agrees"),
        ("reserved", 9_970, "differs"),
        ("used", 5_000, "unknown"),
        ("used", 9_850, "unknown"),
    ],
)
def test_the_remaining_quota_shows_the_charge_model(charge: str, left: float, verdict: str) -> None:
    model = LaneLimits(charge=charge)  # type: ignore[arg-type]
    assert check_charge(model, USAGE, 256, AxisHint(10_000, left)).verdict == verdict


def test_a_bucket_that_holds_less_than_a_minute_shows_it_by_its_refill() -> None:
    hint = AxisHint(limit=60_000, remaining=970, reset_ms=30)
    assert check_charge(LaneLimits(), USAGE, 256, hint).verdict == "agrees"


def test_a_refill_is_reported_no_finer_than_a_millisecond() -> None:
    hint = AxisHint(limit=2_000_000, remaining=33_317, reset_ms=1)  # 33 tokens a millisecond
    assert check_charge(LaneLimits(), USAGE, 256, hint).verdict == "agrees"


def test_an_output_factor_counts() -> None:
    model = LaneLimits(output_factor=5)
    assert check_charge(model, USAGE, 256, AxisHint(10_000, 9_890)).verdict == "agrees"


@pytest.mark.parametrize(
    ("usage", "max_tokens", "hint", "why"),
    [
        (USAGE, 256, None, "how many tokens are left"),
        (USAGE, 256, AxisHint(limit=10_000), "how many tokens are left"),
        (Usage(), 256, AxisHint(10_000, 9_970), "what it used"),
        (USAGE, 20, AxisHint(10_000, 9_970), "--max-tokens"),
        (USAGE, None, AxisHint(10_000, 9_970), "--max-tokens"),
        (USAGE, 256, AxisHint(10_000, 200), "others may be calling"),
    ],
)
def test_what_cannot_be_reported_says_why(
    usage: Usage, max_tokens: int | None, hint: AxisHint | None, why: str
) -> None:
    shown = check_charge(LaneLimits(), usage, max_tokens, hint)
    assert shown.verdict == "unknown"
    assert why in shown.reason

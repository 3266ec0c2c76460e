"""Corrects headers of a few providers that do not mean what they say."""

from collections.abc import Mapping

from fairlane.model.hints import Axis, AxisHint
from fairlane_workers.providers.limits.amounts import MOST, number
from fairlane_workers.providers.limits.clocks import Axes, add
from fairlane_workers.providers.limits.ratelimit_fields import read_fields

NAMES = frozenset(
    {
        "x-ratelimit-type",
        "x-ratelimit-renewalperiod-requests",
        "x-ratelimit-renewalperiod-tokens",
        "x-ratelimitbysize-remaining-month",
    }
)

_SECOND_MS, _HOUR_MS = 1000, 3_600_000
_LEAST_RPM_OF_XAI = 60
_PERIOD = "x-ratelimit-renewalperiod-"
_PERIODS: tuple[Axis, ...] = ("requests", "tokens")


def day_of_a_slow_refill(axes: Axes, headers: Mapping[str, str], now_ms: int) -> None:
    """Move OpenAI's requests to the axis ``day`` if their period is a day.

    The reset is the time to a full refill, so ``reset × limit ÷ used`` is the limit's whole period. With one
    of 10,000 used, a reset of 8.64 s shows a day, one of 6 ms a minute. Resets below a second are too coarse
    to show it.
    """
    hint = axes.get("requests")
    if hint is None or not hint.limit or hint.remaining is None or (hint.reset_ms or 0) < _SECOND_MS:
        return
    used = hint.limit - hint.remaining
    if used > 0 and (hint.reset_ms or 0) * hint.limit / used > _HOUR_MS:
        axes["day"] = axes.pop("requests")


def azure_limits(axes: Axes, headers: Mapping[str, str], now_ms: int) -> None:
    """Convert limits of another period to limits per minute."""
    for axis in _PERIODS:
        hint, period_s = axes.get(axis), number(headers.get(_PERIOD + axis))
        if hint is not None and hint.limit is not None and period_s and period_s != 60:
            axes[axis] = hint._replace(limit=min(MOST, hint.limit * 60 / period_s))


def mistral_month(axes: Axes, headers: Mapping[str, str], now_ms: int) -> None:
    """Note a month's tokens only if they are exhausted: until then they do not bound the rate.

    An exhausted month becomes the axis ``day`` with nothing remaining, of unknown limit and reset. So the
    rate per minute is not cut for it.
    """
    if number(headers.get("x-ratelimitbysize-remaining-month")) == 0:
        axes["day"] = AxisHint(remaining=0)


def xai_seconds(axes: Axes, headers: Mapping[str, str], now_ms: int) -> None:
    """Convert requests per second to requests per minute.

    xAI allows whole requests per second, and 60 times as many per minute: a number below 60 is per second.
    """
    hint = axes.get("requests")
    if hint is not None and hint.limit is not None and hint.limit < _LEAST_RPM_OF_XAI:
        axes["requests"] = hint._replace(limit=hint.limit * 60)


def fields_of_the_ietf(axes: Axes, headers: Mapping[str, str], now_ms: int) -> None:
    """Add the hints of the ``RateLimit`` fields."""
    for axis, hint in read_fields(headers, now_ms).items():
        add(axes, axis, hint)

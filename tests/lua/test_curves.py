"""A lane's rate follows CUBIC's curve (RFC 9438, section 4.2) back to its estimate, and probes beyond it."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from tests.support.deployment import Deployment
from tests.support.redis import emptied

SURE, SEARCHES = 0.03, 0.11  # relative standard deviations


def expected(
    est: float, doubt: float, age: float, back: float, slow: bool, climb: float, slope: float | None
) -> float:
    """Calls a minute ``age`` ms after the latest 429; the way back of a sure lane takes ``back`` ms."""
    hurry = max(0.15, min(1, SURE / doubt))
    back = hurry * max(back, min(360_000, 30 * 60_000 / est))
    if age < back:
        cut = max(0.01, min(0.03, 3 * doubt))
        return est * (1 - cut * ((back - age) / back) ** 3)
    past, calls = age - back, 20 * 60_000 / est
    probe = 0.03 * (past / back) ** 3 if slow else min(0.05, 0.03 * (past / min(back, 1000)) ** 3)
    e_fold = max(1000, calls * hurry) if doubt > SEARCHES else max(3000, calls)
    rate = est * (1 + probe) * exp(climb / e_fold)
    return rate if slope is None else min(rate, est * exp(slope * age / 60_000))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    est=st.floats(2, 3000),
    doubt=st.sampled_from([0.001, 0.005, 0.02, 0.05, 0.1, 0.12, 0.3]),
    age=st.sampled_from([0, 0.2, 0.5, 0.9]) | st.floats(1.0001, 1.1) | st.floats(1.1, 2),
    back=st.integers(20_000, 200_000),
    slow=st.booleans(),
    climb=st.sampled_from([0, 0, 500, 2000]),
    slope=st.none() | st.floats(0.001, 0.5),
)
def test_the_rate_is_that_of_the_curve(
    real_redis: Redis,
    est: float,
    doubt: float,
    age: float,
    back: int,
    slow: bool,
    climb: int,
    slope: float | None,
) -> None:
    """``age`` is a multiple of the way back."""
    d = Deployment(emptied(real_redis))
    ref = d.unknown_lane(jobs=1)
    age_ms = age * max(0.15, min(1, SURE / doubt)) * max(back, min(360_000, 30 * 60_000 / est))
    learned = {
        "est": est, "var": (doubt * est) ** 2, "age_ms": age_ms, "back_ms": back, "slow": int(slow),
        "climb_ms": climb, "slope": "" if slope is None else slope,
    }  # fmt: skip
    d.redis.hset(d.keys.lane("sim:fast"), mapping={f"requests_{name}": str(v) for name, v in learned.items()})
    d.ask(ref)
    rate = int(d.lane_state()["requests_pace"]) / 1000
    assert rate == pytest.approx(expected(est, doubt, age_ms, back, slow, climb, slope), rel=1e-4, abs=0.0011)

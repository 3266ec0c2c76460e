"""A lane that has had time enough grants a permit, whatever it has learned, and whatever is in flight."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, Feedback, Signal
from fairlane.model.tokens import Estimate, Usage
from tests.support.deployment import Deployment
from tests.support.hidden_limit import hints
from tests.support.redis import emptied

HOUR_MS = 3_600_000
TRIES = 20

# A configured limit a minute, or none.
rates = st.none() | st.sampled_from([0, 3, 60, 600, 8_000, 60_000])
LIMITS = ("requests_per_minute", "tokens_per_minute", "input_tokens_per_minute", "output_tokens_per_minute")
limits = st.fixed_dictionaries(dict.fromkeys(LIMITS, rates))
shown = st.tuples(
    st.sampled_from([5, 600, 8_000, 90_000]), st.integers(0, 600), st.none() | st.integers(0, 60_000)
)
headers = st.builds(
    lambda axes, exhausted: hints(**axes, exhausted=exhausted),
    st.dictionaries(st.sampled_from(["requests", "tokens", "input", "output"]), shown),
    st.none() | st.sampled_from(["requests", "tokens", "input", "output"]),
)
signals: st.SearchStrategy[Signal] = st.sampled_from(["ok"] * 8 + ["limited", "answered"])
calls = st.lists(
    st.tuples(
        st.integers(0, 120_000),
        st.integers(0, 2),
        signals,
        st.builds(Usage, st.integers(0, 2000), st.integers(0, 6000)),
        st.just(hints()) | headers,
        st.none() | st.integers(0, 90_000),
    ),
    min_size=5,
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limits=limits,
    charge=st.sampled_from(["used", "reserved"]),
    burst=st.sampled_from([0.1, 1.0, 60.0]),
    estimate=st.builds(Estimate, st.integers(0, 3000), st.integers(0, 6000), st.just(0), st.booleans()),
    acts=calls,
)
def test_an_idle_lane_grants(
    real_redis: Redis,
    limits: dict[str, int | None],
    charge: str,
    burst: float,
    estimate: Estimate,
    acts: list[Any],
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=500, tokens=estimate, charge=charge, burst_seconds=burst, **limits)
    flying: list[Attempt] = []
    for wait_ms, ended, signal, used, said, after_ms in acts:
        d.advance(wait_ms)
        for attempt in d.take(ref, 3):
            if d.claim(attempt) is not None:
                flying.append(attempt)
        for attempt in flying[:ended]:
            wait = after_ms if signal == "limited" else None
            assert (
                d.report(attempt, Feedback(signal, used, wait, hints=said), done=signal == "ok") is not None
            )
        del flying[:ended]
    d.advance(HOUR_MS)
    reasons = []
    for _ in range(TRIES):
        grant = d.ask(ref, count=1)
        if grant.permits:
            return
        reasons.append((grant.reason, grant.wait_ms))
        if grant.reason in ("window", "probing", "doubt") and flying and not grant.at_ms:
            return  # until a call ends
        d.advance(max(1, grant.wait_ms))
    raise AssertionError(f"{len(flying)} in flight: {reasons}")

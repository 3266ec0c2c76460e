"""What a call is charged, and what must stay in a bucket for the calls in flight, follow decision 0059."""

from __future__ import annotations

from math import ceil, floor, log, sqrt
from statistics import fmean

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate, Usage
from tests.support.deployment import Deployment, entry, permit_burst_ms
from tests.support.redis import emptied

PER_MINUTE = 60_000  # a token a millisecond
UNIT = 60_000_000
PROMPT, ANSWER = 100, 120  # estimated tokens of each call
RISK, RISK_Z = 0.01, 2.33
LIMITS = {
    "tokens": "tokens_per_minute",
    "input": "input_tokens_per_minute",
    "output": "output_tokens_per_minute",
}

Lengths = list[tuple[int, int]]
lengths = st.tuples(st.integers(1, 1000), st.integers(0, 1000))


class Known:
    """What a run's calls have used, ``own``, and those of its lane before."""

    def __init__(self, earlier: list[float], own: list[float]) -> None:
        self.miss = 0.0
        offs = [n - fmean(run[:i]) for run in (earlier, own) for i, n in enumerate(run) if i]
        for number, off in enumerate(offs):
            self.miss += (off**2 - self.miss) / (32 if number else 1)
        lane, both = earlier + own, min(4, len(earlier + own))
        self.calls = len(own) + both

        def mixed(power: int) -> float:
            return (sum(n**power for n in own) + both * fmean(n**power for n in lane)) / self.calls

        self.mean, self._spread = mixed(1), mixed(2) - mixed(1) ** 2
        self.peak = 0.0
        for count, length in enumerate(own, 1):
            self.peak = max(length, self.peak - (self.peak - fmean(own[:count])) / 128)

    def var(self, usual: float) -> float:
        """The variance, if calls usually deviate by ``usual`` from the mean."""
        return (self.calls * self._spread + usual**2) / (self.calls + 1)


class Reference:
    """Charge and margin of a run's next call; ``stated``: its answer has at most `ANSWER` tokens."""

    def __init__(self, axis: str, earlier: Lengths, own: Lengths, stated: bool) -> None:
        prompts, answers = (Known([call[i] for call in earlier], [call[i] for call in own]) for i in range(2))
        self.calls = answers.calls
        expected = min(answers.mean, ANSWER) if stated else answers.mean
        var = answers.var(max(answers.mean, 0.25 * ANSWER / self.calls))
        if stated:
            var = min(var, expected * (ANSWER - expected))
        self.takes, self.var, self.others, self.peak = 0, 0.0, 0.0, 0.0
        if axis != "output":
            self.takes += ceil(round(prompts.mean, 6))
            self.var += prompts.var(0.1 * prompts.mean)
            self.others += prompts.miss
        if axis != "input":
            self.takes += ceil(round(expected, 6))
            self.var += var
            self.others += answers.miss
            self.peak = answers.peak - expected

    def margin(self, flying: int, full: int, spare: float, factor: float, configured: bool) -> float:
        """Tokens that stay in a bucket of ``full`` tokens when one more call starts than is ``flying``."""
        each, count = max(self.others, self.var), flying + 1
        lomax = (self.calls * (float(RISK ** (-1 / self.calls)) - 1) - 1) / (-log(RISK) - 1)
        excess = RISK_Z * lomax * sqrt(flying * each + self.var * (1 + count**2 / self.calls))
        beyond = 0.35 * sqrt(min(2, flying) * each) * factor
        spills = floor(full * min(1, full / max(1, self.takes))) if configured else full
        deep = max(0, full - self.takes)
        return max(0, min(max(excess, self.peak) - spare, deep + beyond, spills))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    axis=st.sampled_from([*LIMITS]),
    earlier=st.lists(lengths, max_size=12),
    own=st.lists(lengths, min_size=1, max_size=12),
    stated=st.booleans(),
    flying=st.integers(0, 4),
    burst_s=st.sampled_from([0.2, 0.6, 6.0, 60.0]),
    budget=st.sampled_from([0.005, 0.03, 0.1]),
    configured=st.booleans(),
)
@pytest.mark.slow
def test_a_call_waits_for_its_expected_length_and_for_the_risk_of_those_in_flight(
    real_redis: Redis,
    axis: str,
    earlier: Lengths,
    own: Lengths,
    stated: bool,
    flying: int,
    burst_s: float,
    budget: float,
    configured: bool,
) -> None:
    d = Deployment(emptied(real_redis))
    lane = d.lane(requests_per_minute=0, burst_seconds=burst_s, refusal_budget=budget)
    for run, calls in (("r1", earlier), ("r2", own)):
        ref = _run(d, run, stated)
        for used in calls:
            d.finish(d.start(ref)[0], used=Usage(*used))
    d.start(ref, flying)
    if configured:
        d.lanes.limit(lane, {LIMITS[axis]: PER_MINUTE})
    else:
        d.redis.hset(d.keys.lane(lane), f"{axis}_est", str(PER_MINUTE))
    d.redis.hset(d.keys.lane(lane), mapping={f"{axis}_level": "0", f"{axis}_ms": str(d.now_ms)})
    wait_ms = d.ask(ref, count=1).wait_ms

    known = Reference(axis, earlier, own, stated)
    full = int(d.lane_state()[f"{axis}_depth"]) // UNIT - min(50, round(burst_s * 250))
    spare = (round(burst_s * 1000) - permit_burst_ms(burst_s)) / 2 if configured else 0
    factor = max(0, 1 - len(earlier + own) * budget)
    assert not configured or full == permit_burst_ms(burst_s)
    margin = known.margin(flying, full, spare, factor, configured)
    assert wait_ms == pytest.approx(max(1, min(known.takes, full) + ceil(margin)), abs=2)


def _run(d: Deployment, run: str, stated: bool) -> RunRef:
    ref, estimate = d.submit(run=run, rows=40), Estimate(PROMPT, ANSWER, guessed=not stated)
    entries = {"sim:fast": [entry(job, estimate) for job in range(40)]}
    assert d.runs.feed(ref, d.epoch, 0, 40, entries, [], d.now_ms) == 1
    return ref

"""Workloads over HTTP with configured limits: how close to the ideal, and does the provider ever answer 429?

Every stack is cold: the run is submitted as soon as its processes say that they are ready.

"Ideal" is (jobs beyond the burst) ÷ rate + median latency.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from fairlane import JobState, RetryPolicy
from tests.benchmarks.bench_stack import BenchStack, bench_stack
from tests.benchmarks.report import Finding

LATENCY_S, SIGMA = 0.5, 0.4
LATE_MS = 250  # a call that waits at a worker for anything is later than this


def known_limit() -> Iterator[Finding]:
    """3,000 requests a minute, one second of burst, 1,500 jobs."""
    jobs, rate = 1500, 3000 / 60
    stated = config('[lanes."sim:known"]\nrequests_per_minute = 3000')
    with bench_stack(stated, simulated("known", 3000)) as bench:
        wall, cpu, _ = run(bench, jobs, model="sim:known")
        ideal = (jobs - rate) / rate + LATENCY_S
        stats = bench.stats("known")
        yield Finding("known limit", "wall ÷ ideal", wall / ideal, bar=1.03)
        yield Finding("known limit", "429s", stats["rejected"], "calls", bar=0)
        yield Finding("known limit", "succeeded", stats["completed"], "calls", bar=jobs, at_most=False)
        spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in cpu.items())
        total = sum(cpu.values()) * 1000 / jobs
        yield Finding("known limit", "CPU per 1,000 calls", total, "s", bar=3.5, note=spent)
        yield Finding("known limit", "Redis' CPU a call", cpu["redis"] * 1000 / jobs, "ms", bar=0.45)
        yield from _permit_to_wire("known limit", bench, (None, None))


def two_lanes() -> Iterator[Finding]:
    """3,000 jobs at 6,000 a minute and 300 at 300 a minute in one run, slow ones mixed 1:2 at its head."""
    stated = config(
        '[lanes."sim:fast"]\nrequests_per_minute = 6000\n[lanes."sim:slow"]\nrequests_per_minute = 300'
    )
    simulator = simulated("fast", 6000) + simulated("slow", 300)
    with bench_stack(stated, simulator) as bench:
        wall, _, counted = run(bench, 3300, model="sim:{{ lane }}", rows=_mixed())
        fast, slow = bench.stats("fast"), bench.stats("slow")
        fast_ideal = (3000 - 100) / 100 + LATENCY_S
        slow_ideal = (300 - 5) / 5 + LATENCY_S
        fast_wall = fast["last_completed_at"] - counted["submitted_at"]
        yield Finding("two lanes", "fast lane ÷ its ideal alone", fast_wall / fast_ideal, bar=1.03)
        yield Finding("two lanes", "whole ÷ ideal", wall / max(fast_ideal, slow_ideal), bar=1.03)
        yield Finding("two lanes", "429s", fast["rejected"] + slow["rejected"], "calls", bar=0)
        done = fast["completed"] + slow["completed"]
        yield Finding("two lanes", "succeeded", done, "calls", bar=3300, at_most=False)


def thirty_thousand() -> Iterator[Finding]:
    """30,000 requests a minute, 10,000 jobs of half a second, with the default number of slots."""
    jobs, rate = 10_000, 30_000 / 60
    configured = config('[lanes."sim:wide"]\nrequests_per_minute = 30000')
    with bench_stack(configured, simulated("wide", 30_000), slots=None) as bench:
        wall, cpu, _ = run(bench, jobs, model="sim:wide")
        ideal = (jobs - rate) / rate + LATENCY_S
        stats = bench.stats("wide")
        total = sum(cpu.values()) * 1000 / jobs
        yield Finding("30,000 a minute", "wall ÷ ideal", wall / ideal, bar=1.08)
        yield Finding("30,000 a minute", "429s", stats["rejected"], "calls", bar=0)
        yield Finding("30,000 a minute", "succeeded", stats["completed"], "calls", bar=jobs, at_most=False)
        yield Finding("30,000 a minute", "CPU per 1,000 calls", total, "s", bar=2.0)
        yield from _permit_to_wire("30,000 a minute", bench, (5, 30))


def token_bound() -> Iterator[Finding]:
    """6,000 requests and 60,000 tokens a minute; about 200 tokens in, 150±100 out, no more than 400."""
    yield from _token_bound("token bound", 1.05, max_tokens=400)


def unbounded_answers() -> Iterator[Finding]:
    """The same, where the calls set no `max_tokens`."""
    yield from _token_bound("unbounded answers", 1.08, max_tokens=None)


def _token_bound(name: str, bar: float, *, max_tokens: int | None) -> Iterator[Finding]:
    jobs = 300
    stated = config('[lanes."sim:tokens"]\nrequests_per_minute = 6000\ntokens_per_minute = 60000')
    simulator = simulated("tokens", 6000, output_tokens=150) + (
        "tokens_per_minute = 60000\noutput_tokens_stddev = 100\nmax_output_tokens = 400\n"
    )
    with bench_stack(stated, simulator) as bench:
        texts = ({"text": f"row {n} " + "word " * 158} for n in range(jobs))
        wall, _, _ = run(
            bench, jobs, model="sim:tokens", rows=texts, prompt="{{ text }}", max_tokens=max_tokens
        )
        stats = bench.stats("tokens")
        tokens = stats["prompt_tokens"] + stats["completion_tokens"]
        ideal = (tokens - 1000) / 1000 + LATENCY_S
        note = f"{tokens} tokens"
        yield Finding(name, "wall ÷ ideal", wall / ideal, bar=bar, note=note)
        yield Finding(name, "429s", stats["rejected"], "calls", bar=0)
        yield Finding(name, "succeeded", stats["completed"], "calls", bar=jobs, at_most=False)


def flaky() -> Iterator[Finding]:
    """A known limit at a provider that breaks 7 % of the calls in five ways."""
    jobs, rate = 750, 3000 / 60
    faults = (
        "[models.flaky.faults]\nerror_500 = 0.02\nerror_529 = 0.02\nreset = 0.01\n"
        "reset_after_work = 0.01\nmalformed = 0.01\n"
    )
    stated = config('[lanes."sim:flaky"]\nrequests_per_minute = 3000')
    with bench_stack(stated, simulated("flaky", 3000) + faults) as bench:
        retry = RetryPolicy(max_attempts=6, initial_delay=0.5, max_delay=5.0)
        wall, _, counted = run(bench, jobs, model="sim:flaky", retry=retry)
        ideal = (jobs - rate) / rate + LATENCY_S
        stats = bench.stats("flaky")
        yield Finding("flaky provider", "wall ÷ ideal", wall / ideal, bar=1.20)
        yield Finding("flaky provider", "429s", stats["rejected"], "calls", bar=0)
        yield Finding("flaky provider", "succeeded", counted["succeeded"], "jobs", bar=jobs, at_most=False)
        after = stats["duplicates_after"]
        needless = after["completed"]
        yield Finding("flaky provider", "paid twice without need", needless, "calls", bar=0, note=str(after))


def run(
    bench: BenchStack,
    jobs: int,
    *,
    model: str,
    rows: Any = None,
    prompt: str = "question {{ n }}",
    max_tokens: int | None = 32,
    retry: RetryPolicy | None = None,
) -> tuple[float, dict[str, float], dict[str, Any]]:
    before = bench.cpu_seconds()
    started, submitted_at = time.perf_counter(), time.time()
    run = bench.client.submit(
        dataset=rows if rows is not None else ({"n": n} for n in range(jobs)),
        prompt=prompt,
        model=model,
        params={} if max_tokens is None else {"max_tokens": max_tokens},
        retry=retry,
    )
    status = run.wait(timeout=300)
    wall = time.perf_counter() - started
    after = bench.cpu_seconds()
    counted = {
        "submitted_at": submitted_at,
        "succeeded": status.by_state.get(JobState.SUCCEEDED, 0),
    }
    return wall, {name: after[name] - before[name] for name in after}, counted


def _mixed() -> Iterator[dict[str, Any]]:
    for n in range(300):
        yield {"n": n, "lane": "slow"}
        yield {"n": 2 * n, "lane": "fast"}
        yield {"n": 2 * n + 1, "lane": "fast"}
    for n in range(600, 3000):
        yield {"n": n, "lane": "fast"}


def _permit_to_wire(name: str, bench: BenchStack, bars: Sequence[float | None]) -> Iterator[Finding]:
    """``bars``: of the median and of the 99th percentile, in ms."""
    waits = sorted(bench.waits_ms())
    for share, bar in zip((50, 99), bars, strict=True):
        waited = waits[len(waits) * share // 100]
        yield Finding(name, f"permit to request on the wire, p{share}", waited, "ms", bar=bar)
    late = sum(wait > LATE_MS for wait in waits)
    yield Finding(name, f"permits used later than {LATE_MS} ms", late, "calls", bar=0)


def config(lanes: str) -> str:
    return f'[connections.sim]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n{lanes}\n'


def simulated(model: str, per_minute: int, output_tokens: int = 24) -> str:
    return (
        f"[models.{model}]\nrequests_per_minute = {per_minute}\nburst_seconds = 1.0\n"
        f"latency_ms = {LATENCY_S * 1000:g}\nlatency_sigma = {SIGMA}\noutput_tokens = {output_tokens}\n"
    )

"""What a deployment costs that has nothing to do: CPU by process, Redis commands and wake-ups a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_stack import BenchStack, wait_for
from tests.benchmarks.report import Finding
from tests.benchmarks.scale.deployment import NoopPlan, deployment

LANES, SETTLE_S, SECONDS = 10, 25.0, 40.0
MOST_PERCENT = 1.5
SHOWN = 8


def idle() -> Iterator[Finding]:
    """Ten lanes that have been used, two workers, a scheduler, Redis: 40 s without a job, after 25 s."""
    named = "".join(f'[lanes."noop:m{n}"]\nrequests_per_minute = 6000\n' for n in range(LANES))
    config = f'[connections.noop]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n{named}'
    with deployment(NoopPlan, config, None, 2) as loaded:
        loaded.put([{"n": n, "lane": n % LANES} for n in range(20 * LANES)], "noop:m{{ lane }}")
        yield from _rest(loaded.bench)


def _rest(bench: BenchStack) -> Iterator[Finding]:
    _pass(SETTLE_S)
    redis = bench.redis()
    cpu, wakes, asked = bench.cpu_seconds(), _wakes(bench), _asked(redis)
    seconds = _pass(SECONDS)
    after, woken, then = bench.cpu_seconds(), _wakes(bench), _asked(redis)
    redis.close()
    percent = {name: 100 * (after[name] - cpu[name]) / seconds for name in cpu}
    spent = ", ".join(f"{name} {used:.2f}" for name, used in percent.items())
    total = sum(percent.values())
    yield Finding("idle", "CPU of all processes", total, "% of a core", bar=MOST_PERCENT, note=spent)
    for name in cpu:
        each = (woken[name] - wakes[name]) / seconds
        yield Finding("idle", f"{name}: wake-ups of its threads", each, "/s")
    made = {name: (count - asked.get(name, 0)) / seconds for name, count in then.items()}
    first = sorted(made.items(), key=lambda each: -each[1])[:SHOWN]
    shown = ", ".join(f"{name} {each:.1f}" for name, each in first)
    yield Finding("idle", "commands in Redis", sum(made.values()), "/s", note=shown)


def _pass(seconds: float) -> float:
    """Let time pass; how much did."""
    began = time.perf_counter()
    wait_for(lambda: time.perf_counter() - began >= seconds, seconds + 30, interval=0.5)
    return time.perf_counter() - began


def _wakes(bench: BenchStack) -> dict[str, int]:
    """How often the threads of each process have waited for something, until now."""
    return {name: sum(map(_waited, _threads(pid))) for name, pid in bench.pids.items()}


def _threads(pid: int) -> Iterator[Path]:
    return Path(f"/proc/{pid}/task").iterdir()


def _waited(thread: Path) -> int:
    lines = (thread / "status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("voluntary_ctxt_switches")).split()[1])


def _asked(redis: Any) -> dict[str, int]:
    """Commands so far by name, those inside scripts too."""
    stats = redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()}

"""A stack of real processes for one benchmark, and what can be read off it."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from fairlane import Client
from fairlane.config.loader import load_settings
from fairlane.local.plan import StackPlan
from fairlane.local.stack import Stack
from tests.benchmarks.processes import cpu_of, resident_mb
from tests.support.wait import wait_until

SIMULATOR = "simulator"


@dataclass(slots=True)
class BenchStack:
    """A running stack with its client; ``model`` names are those of the simulated provider."""

    stack: Stack
    client: Client
    directory: Path

    def stats(self, model: str) -> dict[str, Any]:
        """The simulated provider's own count of a model."""
        with urllib.request.urlopen(f"{self._provider}/stats", timeout=10) as answer:  # noqa: S310
            counted: dict[str, Any] = json.load(answer)["models"][model]
        return counted

    def reset_stats(self) -> None:
        request = urllib.request.Request(f"{self._provider}/stats/reset", method="POST")  # noqa: S310
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time used so far by each process, without the simulated provider."""
        return cpu_of(self.pids)

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids by name, without the simulated provider."""
        return {name: pid for name, pid in self.stack.pids.items() if name != SIMULATOR}

    def rss_mb(self, name: str) -> float:
        """Resident memory of a process."""
        return resident_mb(self.stack.pids[name])

    def waits_ms(self) -> list[float]:
        """Milliseconds from permit to request, of every call, as the workers logged them."""
        waits = []
        for log in (self.directory / "data" / "logs").glob("worker-*.log"):
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
                if '"wire_ms"' in line and (wire_ms := json.loads(line)["wire_ms"]) is not None:
                    waits.append(float(wire_ms))
        return waits

    def redis(self) -> Redis:
        return Redis.from_url(self.stack.redis_url)

    @property
    def _provider(self) -> str:
        url = self.stack.simulator_url or ""
        return url.removesuffix("/v1")


@contextmanager
def bench_stack(
    config: str,
    simulator: str | None,
    *,
    workers: int = 2,
    slots: int | None = 150,
    level: str = "info",
    kind: type[StackPlan] = StackPlan,
    env: Mapping[str, str] | None = None,
) -> Iterator[BenchStack]:
    """Everything up, on an embedded Redis; gone afterwards. Without ``simulator`` no provider is simulated.

    ``kind`` of plan says which programs run; ``env``: further variables for all.
    """
    directory = Path(tempfile.mkdtemp(prefix="fairlane-bench-"))
    (directory / "fairlane.toml").write_text(f'{config}\n[log]\nformat = "json"\nlevel = "{level}"\n')
    (directory / "simulator.toml").write_text(simulator or "")
    plan = kind(
        data_dir=directory / "data",
        config=directory / "fairlane.toml",
        env=env or {},
        workers=workers,
        **({} if slots is None else {"slots": slots}),
        simulate=simulator is not None,
        simulate_config=directory / "simulator.toml",
    )
    try:
        with Stack(plan) as stack:
            settings = load_settings(directory / "fairlane.toml", environ=stack.environment)
            with Client(stack.redis_url, team="bench", settings=settings) as client:
                yield BenchStack(stack, client, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def wait_for(predicate: Any, timeout: float, interval: float = 0.005) -> float:
    """Seconds until ``predicate()`` is true."""
    started = time.perf_counter()
    wait_until(predicate, timeout=timeout, interval=interval)
    return time.perf_counter() - started

"""A deployment whose workers write down each call, and what one load on it cost."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fairlane import JobState
from fairlane.core.errors import RunTimeout
from fairlane.local.plan import StackPlan
from fairlane.model.run import RunRef
from fairlane.store.keys import Keys
from tests.benchmarks.bench_stack import BenchStack, bench_stack
from tests.benchmarks.processes import cpu_of, peak_mb

MOST_S, CANCEL_S = 30.0, 30.0
"""A load is cancelled when it takes longer; what has ended until then is what was measured."""


class Call(NamedTuple):
    """``at_s``: Unix time when it left; ``wire_ms``: from its permit until then."""

    at_s: float
    lane: str
    wire_ms: int


@dataclass(frozen=True, slots=True)
class Load:
    """What one load cost. ``cpu_s`` and ``rss_mb`` by process; ``submitter`` is this one's part.

    ``wall_s``: from the submission to the last report; ``bytes_a_record``: what Redis keeps of a job that
    has ended.
    """

    jobs: int
    began_s: float
    wall_s: float
    cpu_s: Mapping[str, float]
    rss_mb: Mapping[str, float]
    bytes_a_record: float

    @property
    def per_s(self) -> float:
        return self.jobs / self.wall_s

    @property
    def cores(self) -> dict[str, float]:
        """The part of a core that each process used."""
        return {name: used / self.wall_s for name, used in self.cpu_s.items()}

    def cpu_ms(self, role: str = "") -> float:
        """CPU a job of all processes whose names begin so, in ms. The submitter counts only by its name."""
        counted = (
            s for name, s in self.cpu_s.items() if name.startswith(role) and (role or name != SUBMITTER)
        )
        return sum(counted) * 1000 / self.jobs

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


SUBMITTER = "submitter"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan(StackPlan):
    """Workers that call their provider over HTTP."""

    def worker_command(self, name: str) -> list[str]:
        return self._measured(name)

    def _measured(self, name: str, *how: str) -> list[str]:
        slots = [] if self.slots is None else ["--slots", str(self.slots)]
        ready = ["--name", name, "--ready-file", str(self.ready_file(name))]
        module = [sys.executable, "-m", "tests.benchmarks.measured_worker"]
        return [*module, *how, str(calls_file(self.data_dir, name)), *ready, *slots]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoopPlan(MeasuredPlan):
    """Workers whose provider answers at once."""

    def worker_command(self, name: str) -> list[str]:
        return self._measured(name, "--noop")


def calls_file(data_dir: Path, worker: str) -> Path:
    return data_dir.resolve() / f"{worker}.calls"


class Loaded:
    """A running deployment to put loads on; its calls are there once it has stopped."""

    def __init__(self, bench: BenchStack) -> None:
        self.bench = bench
        self.calls: list[Call] = []

    def put(self, rows: Sequence[Mapping[str, Any]], model: str) -> Load:
        """Submit a run of short prompts and wait for its end."""
        before, own, began = self.bench.cpu_seconds(), time.process_time(), time.time()
        run = self.bench.client.submit(
            dataset=rows, prompt="question {{ n }}", model=model, params={"max_tokens": 32}
        )
        try:
            status = run.wait(timeout=MOST_S)
        except RunTimeout:
            run.cancel()
            status = run.wait(timeout=CANCEL_S)
        ended = max(1, status.by_state.get(JobState.SUCCEEDED, 0))
        cpu = {name: now - before[name] for name, now in cpu_of(self.bench.pids).items()}
        cpu[SUBMITTER] = time.process_time() - own
        redis, keys, ref = self.bench.redis(), Keys("main"), RunRef(run.team, run.id)
        kept = sum(redis.memory_usage(key, samples=0) or 0 for key in (keys.results(ref), keys.rows(ref)))
        redis.close()
        return Load(
            jobs=ended,
            began_s=began,
            wall_s=(status.finished_ms or 0) / 1000 - began,
            cpu_s=cpu,
            rss_mb={name: peak_mb(pid) for name, pid in self.bench.pids.items()},
            bytes_a_record=kept / ended,
        )


@contextmanager
def deployment(
    plan: type[MeasuredPlan], config: str, simulator: str | None, workers: int
) -> Iterator[Loaded]:
    """A deployment; after the block, `Loaded.calls` has every call that its workers made."""
    with bench_stack(config, simulator, workers=workers, slots=None, kind=plan) as bench:
        loaded = Loaded(bench)
        yield loaded
        bench.stack.stop()
        files = (calls_file(bench.directory / "data", f"worker-{n}") for n in range(1, workers + 1))
        loaded.calls = sorted(Call(*each) for each in chain.from_iterable(map(_read, files)))


def _read(path: Path) -> list[Any]:
    return list(json.loads(path.read_text()))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of ordered values; 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def evenness(calls: Sequence[Call], lanes: int) -> tuple[float, float]:
    """How evenly lanes are served in the first half of calls: Jain's index, and the slowest lane's part.

    Jain's index is (Σx)² ÷ (n · Σx²): 1 if all have the same, 1 ÷ n if one has all. The slowest lane's part
    is its calls ÷ the mean. Source: Jain, Chiu and Hawe, DEC-TR-301, 1984.
    """
    counted = Counter(call.lane for call in calls[: len(calls) // 2])
    each = [*counted.values(), *([0] * (lanes - len(counted)))]
    total = sum(each)
    if not total:
        return 0.0, 0.0
    return total**2 / (lanes * sum(x * x for x in each)), min(each) * lanes / total

"""A batch file of a million lines: what ``fairlane batch`` holds while it checks, uploads and writes them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlane.model.job import JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef, RunState
from fairlane.model.tokens import Usage
from fairlane.store.keys import Keys
from fairlane.store.write.lanes.lanes import Lanes
from tests.benchmarks.bench_stack import BenchStack, bench_stack
from tests.benchmarks.report import Finding
from tests.support.wait import wait_until

FEW, MANY = 10_000, 1_000_000
MOST_S = 900.0
NAME = "batch of 1,000,000 lines"
CONFIG = (
    '[connections.sim]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n'
    '[lanes."sim:wait"]\nrequests_per_minute = 60\n'
)


@dataclass(frozen=True, slots=True)
class Command:
    """What one command took; ``most_mb`` is the most memory that it ever held."""

    seconds: float
    most_mb: float
    said: str


def batch_file() -> Iterator[Finding]:
    """1,000,000 short requests, against 10,000: no call is made, their answers are put into Redis."""
    with bench_stack(CONFIG, "[models.wait]\nlatency_ms = 10\n", workers=1) as bench:
        redis = bench.redis()
        Lanes(redis, Keys("main")).pause("sim:wait")
        little, most = _through(bench, FEW), _through(bench, MANY)
        for what, few, many in zip(("checked and uploaded", "written"), little, most, strict=True):
            yield Finding(NAME, what, MANY / many.seconds, "lines/s")
            yield Finding(NAME, f"memory at most while {what}", many.most_mb, "MiB")
            grown = (many.most_mb - few.most_mb) * 2**20 / (MANY - FEW)
            yield Finding(NAME, f"memory a line while {what}", grown, "bytes", bar=32)
        yield Finding(NAME, "Redis memory", redis.info("memory")["used_memory"] / (MANY + FEW), "bytes/line")
        redis.close()


def _through(bench: BenchStack, lines: int) -> tuple[Command, Command]:
    """Submit a file of that many lines, give each an answer, and write the answers."""
    requests, answers = bench.directory / "in.jsonl", bench.directory / "out.jsonl"
    _write_requests(requests, lines)
    sent = _command(bench, ["in.jsonl", "-o", "out.jsonl", "--model", "sim:wait"], "requests")
    run = bench.client.runs(1)[0].run
    bench.client.run(run).cancel()
    wait_until(lambda: bench.client.run(run).status().state is RunState.CANCELLED, timeout=60, interval=0.1)
    _answer(bench, run, lines)
    written = _command(bench, ["--run", run, "-o", "out.jsonl"], f"{lines:,} answers are in")
    with answers.open(encoding="utf-8") as file:
        count = sum(json.loads(line)["custom_id"] == f"r{n}" for n, line in enumerate(file))
    if count != lines:
        raise RuntimeError(f"{count:,} of {lines:,} answers were written in their order")
    return sent, written


def _write_requests(path: Path, lines: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for n in range(lines):
            message = {"role": "user", "content": f"What is {n} + {n}?"}
            request = {"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions"}
            file.write(json.dumps({**request, "body": {"model": "wait", "messages": [message]}}) + "\n")


def _answer(bench: BenchStack, run: str, lines: int) -> None:
    """Put a result for each item where workers would, since no benchmark has hours."""
    with bench.redis() as redis:
        key = Keys("main").results(RunRef(bench.client.team, run))
        pipeline = redis.pipeline(transaction=False)
        for n in range(lines):
            result = TaskResult(JobState.SUCCEEDED, f"It is {n + n}.", usage=Usage(12, 5), attempts=1)
            pipeline.hset(key, str(n), result.to_json())
            if n % 10_000 == 0:
                pipeline.execute()
        pipeline.execute()


def _command(bench: BenchStack, arguments: Sequence[str], until: str) -> Command:
    """Run ``fairlane batch`` until it says ``until``; then it is interrupted, if it has not ended."""
    log, started = bench.directory / "batch.log", time.perf_counter()
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "fairlane.cli", "--team", bench.client.team, "batch", *arguments],
            cwd=bench.directory,
            env=bench.stack.environment,
            stdout=said,
            stderr=said,
        )
    most = 0.0

    def over() -> bool:
        nonlocal most
        most = max(most, _most_mb(process.pid))
        return until in log.read_text() or process.poll() is not None

    wait_until(over, timeout=MOST_S, interval=0.05)
    seconds = time.perf_counter() - started
    if process.poll() is None and "--run" not in arguments:
        process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    if until not in log.read_text():
        raise RuntimeError(log.read_text()[-2000:])
    return Command(seconds, most, log.read_text())


def _most_mb(pid: int) -> float:
    """The most resident memory that a process has ever had, in MiB; 0 where it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    line = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return int(line.split()[1]) / 1024

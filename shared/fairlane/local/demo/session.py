"""Runs the demonstration on a running stack."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fairlane.client.client import Client
from fairlane.client.deployment import Waiter
from fairlane.client.outputs import Run
from fairlane.config.settings import Settings
from fairlane.core.clock import SystemClock
from fairlane.evaluators.builders import exact_match, llm_judge
from fairlane.export.files import whole_file
from fairlane.export.lines import written
from fairlane.local.demo.questions import read_questions
from fairlane.local.demo.summary import LaneUse, Summary, mean_scores, provider_stats, show_summary
from fairlane.model.run_status import RunStatus

TEAM, JUDGE_LANE = "demo", "sim:judge"
MEDIAN_S = {"sim:fast": 0.4, "sim:slow": 0.9, JUDGE_LANE: 0.3}
"""Median latencies of the simulated models; they stand in ``data/simulator.toml`` too."""

PROMPT = "Answer with the final number alone.\n{{ question }}"
JUDGE = (
    "Question: {{ question }}\nExpected: {{ answer }}\nAnswer: {{ output }}\nDo they agree? Say yes or no."
)


def run_demo(
    settings: Settings,
    simulator_url: str,
    results: Path,
    console: Console,
    *,
    questions: int | None = None,
    waiter: Waiter | None = None,
) -> Path:
    """Submit the questions, watch, write the results, print the summary; returns the file of results."""
    clock, rows = SystemClock(), list(read_questions(questions))
    results.mkdir(parents=True, exist_ok=True)
    with Client(team=TEAM, settings=settings, waiter=waiter) as client:
        _cancel_leftovers(client)
        started_ms = clock.monotonic_ms()
        run = _submit(client, rows)
        console.print(f"run {run.id}: {len(rows):,} questions on two lanes, a judge on a third")
        status = run.wait(progress=True)
        wall_s = (clock.monotonic_ms() - started_ms) / 1000
        path = results / f"{run.id}.jsonl"
        with whole_file(path) as out:
            scores = mean_scores(written(run.results(), out))
    uses = _lane_uses(settings, simulator_url, rows, status)
    show_summary(console, Summary(status, uses, scores, wall_s, ideal_seconds(uses)))
    console.print(f"\nresults: {path}", soft_wrap=True)
    return path


def ideal_seconds(uses: Sequence[LaneUse]) -> float:
    """The least time for the run: that of its slowest lane. Judging starts after the first output."""
    tasks_s = max(use.ideal_s for use in uses if use.lane != JUDGE_LANE)
    return max(tasks_s + MEDIAN_S[JUDGE_LANE], *(use.ideal_s for use in uses if use.lane == JUDGE_LANE))


def _submit(client: Client, rows: Sequence[Mapping[str, Any]]) -> Run:
    return client.submit(
        dataset=rows,
        prompt=PROMPT,
        model="sim:{{ lane }}",
        params={"max_tokens": 32, "temperature": 0},
        evaluators=[
            exact_match(expected="answer"),
            llm_judge(model=JUDGE_LANE, template=JUDGE, choices={"yes": 1, "no": 0}),
        ],
        name="gsm8k",
    )


def _cancel_leftovers(client: Client) -> None:
    """Cancel unfinished runs in a reused data directory, which would take a share of the lanes."""
    for left in client.runs():
        if not left.state.finished:
            run = client.run(left.run)
            run.cancel()
            run.wait()


def _lane_uses(
    settings: Settings, simulator_url: str, rows: Sequence[Mapping[str, Any]], status: RunStatus
) -> list[LaneUse]:
    jobs = Counter(f"sim:{row['lane']}" for row in rows)
    jobs[JUDGE_LANE] = len(rows)
    stats = provider_stats(simulator_url)
    return [
        LaneUse.of(lane, jobs[lane], settings.lanes[lane], MEDIAN_S[lane], stats[lane.partition(":")[2]])
        for lane in MEDIAN_S
    ]

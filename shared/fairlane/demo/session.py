"""Runs the demonstration against a stack that is up."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from fairlane.client import Client
from fairlane.demo.questions import read_questions
from fairlane.demo.summary import (
    ideal_seconds,
    lane_use,
    mean_scores,
    provider_stats,
    show_summary,
    write_results,
)
from fairlane.evaluators import exact_match, llm_judge
from fairlane.settings import Settings

TEAM = "demo"
LANE_OF = {"fast": "sim:fast", "slow": "sim:slow"}
MEDIAN_S = {"sim:fast": 0.4, "sim:slow": 0.9, "sim:judge": 0.3}
PROMPT = "Answer with the final number alone.\n{{ question }}"
JUDGE = (
    "Question: {{ question }}\nExpected: {{ answer }}\nAnswer: {{ output }}\nDo they agree? Say yes or no."
)


def run_demo(
    settings: Settings, simulator_url: str, results: Path, console: Console, *, questions: int | None = None
) -> Path:
    """Submit the questions, watch, print the summary; returns the file with the results."""
    rows = list(read_questions(questions))
    with Client(team=TEAM, settings=settings) as client:
        started = time.perf_counter()
        run = client.submit(
            dataset=rows,
            prompt=PROMPT,
            model="sim:{{ lane }}",
            params={"max_tokens": 32, "temperature": 0},
            evaluators=[
                exact_match(expected="answer"),
                llm_judge(model="sim:judge", template=JUDGE, choices={"yes": 1, "no": 0}),
            ],
            name="gsm8k",
        )
        console.print(f"run {run.id}: {len(rows):,} questions, two lanes, a judge on a third")
        status = run.wait(progress=True)
        wall_s = time.perf_counter() - started
        path = results / f"{run.id}.jsonl"
        scores = mean_scores(write_results(run.results(), path))
    jobs = dict.fromkeys(settings.lanes, 0)
    for row in rows:
        jobs[LANE_OF[row["lane"]]] += 1
    jobs["sim:judge"] = len(rows)
    tasks_s = max(
        ideal_seconds(jobs[lane], settings.lanes[lane], MEDIAN_S[lane]) for lane in LANE_OF.values()
    )
    judge_s = ideal_seconds(jobs["sim:judge"], settings.lanes["sim:judge"], MEDIAN_S["sim:judge"])
    ideal_s = max(tasks_s + MEDIAN_S["sim:judge"], judge_s)
    uses = lane_use(provider_stats(simulator_url), settings.lanes)
    show_summary(console, status, uses, scores, wall_s, ideal_s)
    console.print(f"results: {path}")
    return path

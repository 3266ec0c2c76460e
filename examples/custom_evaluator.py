"""Evaluators of one's own: Python functions, which workers call with each output.

The operator allows this module (`worker.modules` in fairlane.toml), and it is importable where workers run.
A function asks for what it needs by the names of its parameters. It returns a number or a truth value; what
it raises is told in `record.score_errors`, and the item keeps its output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlane import Client, Run, scorer


def brevity(output: str, row: Mapping[str, Any]) -> float:
    """1 for an answer of at most `most` words, and less the longer it is."""
    most: int = row["most"]
    return min(1.0, most / max(1, len(output.split())))


def mentions_question(output: str, row: Mapping[str, Any]) -> bool:
    """Whether the answer takes up the question's last word. Fails for a question that has none."""
    question: str = row["question"]
    return question.split()[-1].strip("?").lower() in output.lower()


def submit(client: Client) -> Run:
    """Three questions, the last of which `mentions_question` cannot judge."""
    rows = [
        {"question": "What is a lane?", "most": 5},
        {"question": "What is a permit?", "most": 50},
        {"question": "", "most": 50},
    ]
    evaluators = [
        scorer("custom_evaluator:brevity"),
        scorer("custom_evaluator:mentions_question", name="mentions"),
    ]
    return client.submit(
        rows, "Say it in some words. {{ question }}", model="sim:fast", evaluators=evaluators
    )


if __name__ == "__main__":
    with Client(team="search") as client:
        for record in submit(client).results():
            print(record.item, record.scores, record.score_errors)

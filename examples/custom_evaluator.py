"""Evaluators of your own: Python functions that workers call with each output.

The operator permits this module by `worker.modules` in fairlane.toml, and workers must be able to import it.
The names of a function's parameters say what it needs. It returns a number or a truth value. If it raises an
exception, the message is in `record.score_errors`, and the item keeps its output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlane import Client, Run, scorer


def brevity(output: str, row: Mapping[str, Any]) -> float:
    """Return 1 for an answer of at most `most` words, and less for a longer one."""
    most: int = row["most"]
    return min(1.0, most / max(1, len(output.split())))


def mentions_question(output: str, row: Mapping[str, Any]) -> bool:
    """Return whether the answer has the question's last word. Raises `IndexError` for an empty question."""
    question: str = row["question"]
    return question.split()[-1].strip("?").lower() in output.lower()


def submit(client: Client) -> Run:
    """Submit three questions. `mentions_question` fails on the last one, which is empty."""
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

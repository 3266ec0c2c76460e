"""A run whose records the programs of this folder send: two rows, two models, a judge that fails once."""

from __future__ import annotations

from typing import Any

from fairlane.evaluators.builders import exact_match, llm_judge
from fairlane.export.trackers.exported import ExportedRun
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.run import RunSpec
from fairlane.model.tokens import Usage

MODELS = ("sim:small", "sim:{{ 'large' }}")
SPEC = RunSpec.model_validate(
    {
        "run": "01example",
        "team": "search",
        "name": "capitals, nightly",
        "prompts": [[{"role": "user", "content": "{{ question }}"}]],
        "models": MODELS,
        "params": {"temperature": 0.5},
        "evaluators": [
            exact_match(expected="answer"),
            llm_judge("sim:judge", "Good? {{ output }}", {"yes": 1.0, "no": 0.0}),
        ],
        "rows": 2,
        "page_rows": 100,
        "submitted_ms": 1_700_000_000_000,
    }
)
ROWS = [{"question": "France?", "answer": "Paris"}, {"question": "Größe?", "answer": "1", "tags": ["a"]}]


def _record(item: int, output: str | None, judged: float | None, **changes: Any) -> Record:
    row = ROWS[item // 2]
    exact = None if output is None else float(output == row["answer"])
    return Record(
        **{
            "item": item,
            "row": row,
            "model": ("sim:small", "sim:large")[item % 2],
            "prompt": 0,
            "repetition": 0,
            "state": JobState.SUCCEEDED,
            "output": output,
            "scores": {"exact_match": exact, "llm_judge": judged},
            "score_errors": {} if judged is not None else {"llm_judge": "the judge said maybe"},
            "usage": Usage(10, 2, 1),
            "attempts": 1,
            "error": None,
            "latency_ms": 250,
            "eval_usage": {"llm_judge": Usage(5, 1)},
            "finish_reason": "max_tokens",
            "arguments": {"llm_judge": "It is so."} if judged is not None else {},
            **changes,
        }
    )


RECORDS = [
    _record(0, "Paris", 1.0),
    _record(1, "Paris", 0.5),
    _record(2, "2", None),
    _record(3, None, None, state=JobState.FAILED, error="400: refused", usage=Usage()),
]


def _messages(record: Record) -> list[dict[str, Any]]:
    return [{"role": "user", "content": record.row["question"]}]


RUN = ExportedRun(SPEC, _messages)

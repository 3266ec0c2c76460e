"""Answers what graders ask by runs: one for each model and set of parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fairlane.apps.promptfoo.grading.asks import Ask, Chat
from fairlane.apps.promptfoo.subjects import CheckError
from fairlane.client.handle import Run
from fairlane.client.submitting.options import SubmitOptions
from fairlane.export.finish_reasons import REFUSAL
from fairlane.model.evaluators import Similarity
from fairlane.model.record import Record

REQUEST, OUTPUT, REFERENCE = "request", "output", "reference"
_COSINE = "cosine"

Submit = Callable[[Sequence[Mapping[str, Any]], SubmitOptions], Run]
Wait = Callable[[Run], None]


class Calls:
    """Asks models by runs. ``common`` are options of each, ``submit`` and ``wait`` run them."""

    def __init__(self, common: SubmitOptions, submit: Submit, wait: Wait) -> None:
        self._common, self._submit, self._wait = common, submit, wait
        self.runs: list[str] = []

    def __call__(self, asks: Sequence[Ask]) -> list[Any]:
        """The answers, in order; a `CheckError` for each that failed."""
        groups: dict[str, list[int]] = {}
        for number, each in enumerate(asks):
            key = json.dumps(
                [type(each).__name__, each.model, dict(each.params)], sort_keys=True, default=str
            )
            groups.setdefault(key, []).append(number)
        started = [
            (numbers, self._start([asks[number] for number in numbers])) for numbers in groups.values()
        ]
        answers: list[Any] = [CheckError("the judge did not answer")] * len(asks)
        for numbers, run in started:
            self._wait(run)
            for number, answer in _answers(numbers, run.results()):
                answers[number] = answer
        return answers

    def _start(self, asks: Sequence[Ask]) -> Run:
        first = asks[0]
        options = self._common.copy()
        rows: list[dict[str, Any]]
        if isinstance(first, Chat):
            options["model"], options["params"], options["request"] = first.model, dict(first.params), REQUEST
            rows = [{REQUEST: {"messages": list(each.messages)}} for each in asks if isinstance(each, Chat)]
        else:
            options["output"] = OUTPUT
            options["evaluators"] = [
                Similarity(name=_COSINE, model=first.model, expected=REFERENCE, params=dict(first.params))
            ]
            rows = [{OUTPUT: each.one, REFERENCE: each.other} for each in asks if not isinstance(each, Chat)]
        run = self._submit(rows, options)
        self.runs.append(run.id)
        return run


def _answers(numbers: Sequence[int], records: Iterable[Record]) -> Iterable[tuple[int, Any]]:
    for record in records:
        if _COSINE in record.scores:
            cosine = record.scores[_COSINE]
            why = record.score_errors.get(_COSINE) or "the texts were not compared"
            yield numbers[record.item], CheckError(why) if cosine is None else cosine
        elif record.output is None:
            yield numbers[record.item], CheckError(f"the judge failed: {record.error or record.state}")
        elif record.finish_reason == REFUSAL:
            yield numbers[record.item], CheckError(f"the judge refused: {record.output}")
        else:
            yield numbers[record.item], record.output

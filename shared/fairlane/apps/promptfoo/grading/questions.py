"""The questions of graders to models, and the loop that answers those of many graders in rounds."""

import json
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from fairlane.apps.promptfoo.subjects import CheckError, Result
from fairlane.client.outputs import Run
from fairlane.client.submitting.options import SubmitOptions
from fairlane.core.errors import TemplateError
from fairlane.export.finish_reasons import REFUSAL
from fairlane.model.evaluators import Similarity
from fairlane.model.record import Record
from fairlane.templates.template import Template


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat to send; its answer is a text."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EmbeddingPair:
    """Two texts to embed; the answer is the cosine between them."""

    model: str
    one: str
    other: str
    params: Mapping[str, Any] = field(default_factory=dict)


Question: TypeAlias = Chat | EmbeddingPair
Answers: TypeAlias = Sequence[Any]
Grader: TypeAlias = Generator[Sequence[Question], Answers, Result]
"""Yields questions and receives their answers, in order, until it returns. It may raise `CheckError`."""


def chat_from(model: Mapping[str, Any], template: str, names: Mapping[str, Any]) -> Chat:
    """A chat from a template: the messages of its JSON, each rendered, or one user's message.

    ``model`` has ``model`` and ``params``.
    """
    try:
        document = _rendered(json.loads(template), names)
    except (ValueError, RecursionError):
        document = None
    if not (
        isinstance(document, list) and all(isinstance(each, Mapping) and "role" in each for each in document)
    ):
        document = [{"role": "user", "content": render(template, names)}]
    return Chat(model["model"], document, model.get("params") or {})


def render(template: str, names: Mapping[str, Any]) -> str:
    """A template with these names. Raises `CheckError`."""
    try:
        return Template("rubricPrompt", template).render_variables(dict(names))
    except TemplateError as error:
        raise CheckError(str(error)) from None


def first_object(answer: str) -> dict[str, Any] | None:
    """The first JSON object in an answer, perhaps after reasoning; ``None`` without one."""
    text = answer.rpartition("</think>")[2]
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(_STARTS):
        if start < 0:
            return None
        try:
            found, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        return found if isinstance(found, dict) else None
    return None


_STARTS = 100
"""Braces of an answer that are tried as the start of an object."""


def _rendered(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return render(value, names)
    if isinstance(value, list):
        return [_rendered(each, names) for each in value]
    if isinstance(value, Mapping):
        return {name: _rendered(each, names) for name, each in value.items()}
    return value


Key = TypeVar("Key", bound=Hashable)
AnswerQuestions = Callable[[Sequence[Question]], Sequence[Any]]
"""Answers questions in their order: a text or a number, or a `CheckError` where there is no answer."""


def grade(graders: Mapping[Key, Grader], ask: AnswerQuestions) -> dict[Key, Result | CheckError]:
    """The result of each grader, or why there is none."""
    graded: dict[Key, Result | CheckError] = {}
    waiting: dict[Key, tuple[Grader, Sequence[Question]]] = {}
    for key, grader in graders.items():
        _advance(key, grader, None, waiting, graded)
    while waiting:
        round_, waiting = waiting, {}
        answers = iter(ask([each for _, questions in round_.values() for each in questions]))
        for key, (grader, questions) in round_.items():
            own = [next(answers) for _ in questions]
            failed = next((each for each in own if isinstance(each, CheckError)), None)
            if failed is not None:
                grader.close()
                graded[key] = failed
            else:
                _advance(key, grader, own, waiting, graded)
    return graded


def _advance(
    key: Key,
    grader: Grader,
    answers: Sequence[Any] | None,
    waiting: dict[Key, tuple[Grader, Sequence[Question]]],
    graded: dict[Key, Result | CheckError],
) -> None:
    try:
        waiting[key] = (grader, grader.send(answers) if answers is not None else next(grader))
    except StopIteration as ended:
        graded[key] = ended.value
    except CheckError as error:
        graded[key] = error


REQUEST, OUTPUT, REFERENCE = "request", "output", "reference"
_COSINE = "cosine"

Submit = Callable[[Sequence[Mapping[str, Any]], SubmitOptions], Run]
Wait = Callable[[Run], None]


class Calls:
    """Answers questions by runs: ``common`` are the options of each, ``submit`` and ``wait`` execute them."""

    def __init__(self, common: SubmitOptions, submit: Submit, wait: Wait) -> None:
        self._common, self._submit, self._wait = common, submit, wait
        self.runs: list[str] = []

    def __call__(self, questions: Sequence[Question]) -> list[Any]:
        """The answers, in order; a `CheckError` for each that failed."""
        groups: dict[str, list[int]] = {}
        for number, each in enumerate(questions):
            key = json.dumps(
                [type(each).__name__, each.model, dict(each.params)], sort_keys=True, default=str
            )
            groups.setdefault(key, []).append(number)
        started = [
            (numbers, self._start([questions[number] for number in numbers])) for numbers in groups.values()
        ]
        answers: list[Any] = [CheckError("the judge did not answer")] * len(questions)
        for numbers, run in started:
            self._wait(run)
            for number, answer in _answers(numbers, run.results()):
                answers[number] = answer
        return answers

    def _start(self, questions: Sequence[Question]) -> Run:
        first = questions[0]
        options = self._common.copy()
        rows: list[dict[str, Any]]
        if isinstance(first, Chat):
            options["model"], options["params"], options["request"] = first.model, dict(first.params), REQUEST
            rows = [
                {REQUEST: {"messages": list(each.messages)}} for each in questions if isinstance(each, Chat)
            ]
        else:
            options["output"] = OUTPUT
            options["evaluators"] = [
                Similarity(name=_COSINE, model=first.model, expected=REFERENCE, params=dict(first.params))
            ]
            rows = [
                {OUTPUT: each.one, REFERENCE: each.other} for each in questions if not isinstance(each, Chat)
            ]
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

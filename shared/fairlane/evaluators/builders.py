"""Builds evaluators other than functions: pure ones, which need no call, and judges, agents and others."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fairlane.core.errors import SubmissionError
from fairlane.core.section import first_flaw
from fairlane.evaluators.patterns import PatternError, compile_pattern
from fairlane.evaluators.rubrics import MET, UNMET, has_room_for_reasons, rubric_template
from fairlane.evaluators.scorers import as_text, seen
from fairlane.model.evaluators import (
    FUNCTION_REMEDY,
    MOST_FLOAT,
    Agent,
    Contains,
    Criterion,
    EvaluatorSpec,
    ExactMatch,
    JsonValid,
    Judge,
    Level,
    NumericMatch,
    Regex,
    Similarity,
)

FIELD = "evaluators"

Spec = TypeVar("Spec", bound=BaseModel)


def exact_match(
    expected: str, *, ignore_case: bool = False, strip: bool = True, name: str = "exact_match"
) -> EvaluatorSpec:
    """1 if the output equals the row's field ``expected``, or one of the answers that it lists."""
    return build(ExactMatch, name=name, expected=expected, ignore_case=ignore_case, strip=strip)


def contains(
    expected: str | None = None, *, text: str | None = None, ignore_case: bool = False, name: str = "contains"
) -> EvaluatorSpec:
    """1 if the output contains the row's field ``expected``, or the fixed ``text``; give one of them."""
    _require_one("contains", expected, text)
    if isinstance(text, str) and not seen(text):
        raise SubmissionError(FIELD, text, "contains: every output contains an empty text", "Give some text.")
    return build(Contains, name=name, expected=expected, text=text, ignore_case=ignore_case)


def regex(pattern: str, *, expected: str | None = None, name: str = "regex") -> EvaluatorSpec:
    """1 if ``pattern`` is found in the output; with ``expected``, if its last match's group is that field.

    A search ends after `patterns.SEARCH_S` seconds, without a score: patterns like ``(a+)+$`` can take years.
    """
    if not isinstance(pattern, str):
        raise SubmissionError(FIELD, pattern, "a pattern is a text", 'Give a str, like r"(\\d+)".')
    if not pattern:
        problem = "regex: an empty pattern is found in every output"
        raise SubmissionError(FIELD, pattern, problem, "Give what is to be found.")
    try:
        groups = compile_pattern(pattern).groups
    except PatternError as error:
        problem = f"regex: the pattern is no regular expression: {error}"
        raise SubmissionError(FIELD, pattern, problem, "Correct it.") from None
    if expected is not None and groups < 1:
        problem = "regex: the pattern has no group to compare with expected"
        raise SubmissionError(FIELD, pattern, problem, "Put ( ) around the part to compare.")
    return build(Regex, name=name, pattern=pattern, expected=expected)


def json_valid(
    *, required: Sequence[str] = (), fenced: bool = False, name: str = "json_valid"
) -> EvaluatorSpec:
    """1 if the output is JSON; with ``required``, an object that has all these keys.

    With ``fenced``, JSON in a fenced block or between prose counts, too, as in `Run.parsed`. Two different
    objects count as none.
    """
    if isinstance(required, str):
        raise SubmissionError(
            FIELD, required, "json_valid: required is a list of keys", f"Give [{required!r}]."
        )
    return build(JsonValid, name=name, required=tuple(required), fenced=fenced)


def numeric_match(expected: str, *, tolerance: float = 1e-6, name: str = "numeric_match") -> EvaluatorSpec:
    """1 if the output's answer equals the row's field ``expected``, within ``tolerance``.

    The answer is the number behind the last ``####`` or in LaTeX's last box, else the last number. There is
    no score if the field holds several numbers, or an ambiguous one such as "5k".
    """
    if isinstance(tolerance, bool) or (isinstance(tolerance, float) and not math.isfinite(tolerance)):
        problem = "numeric_match: the tolerance is no finite number"
        raise SubmissionError(FIELD, tolerance, problem, "Give one, like 0.01.")
    return build(NumericMatch, name=name, expected=expected, tolerance=tolerance)


def llm_judge(
    model: str,
    template: str | None = None,
    choices: Mapping[str, float] | None = None,
    *,
    rubric: str | None = None,
    params: Mapping[str, Any] | None = None,
    reasons: bool | None = None,
    level: Level = "item",
    name: str = "llm_judge",
) -> EvaluatorSpec:
    """An LLM call that sees the row's fields and ``output``, and answers with one of ``choices``.

    With ``level="session"`` it sees ``session`` instead, once all items of the session have ended. That is a
    list of ``{"row", "output"}`` in the order of rows; an item without an output has ``None``. ``choices``
    maps answers to scores; `judge.parse_choice` says how an answer is read. ``rubric``, in place of both, is
    a text that an output meets (1) or not (0). ``model`` is ``"<connection>:<model>"``.

    Nothing but ``params`` is sent: reasoning models reject a temperature, and count their reasoning towards
    a bound. A connection with structured output answers with a reason and a choice; records keep the reason
    in ``arguments``. With ``reasons=False`` it answers with a choice alone. ``None`` asks for reasons
    unless ``params`` bound an answer to less than `rubrics.REASON_TOKENS`: then nothing but the template
    says how to answer.
    """
    if rubric is not None:
        template, choices = _of_rubric(rubric, template, choices, level)
    if template is None or choices is None:
        missing = "choices" if template is not None else "template"
        remedy = "Give template= and choices=, or rubric= in place of both."
        raise SubmissionError(FIELD, None, f"llm_judge: {missing} is missing", remedy)
    choices = _take_choices(choices)
    given = dict(params or {})
    if reasons is None and has_room_for_reasons(given):
        reasons = True
    return build(
        Judge,
        name=name,
        model=model,
        template=template,
        choices=choices,
        params=given,
        level=level,
        reasons=reasons,
    )


def similarity(
    model: str,
    expected: str | None = None,
    *,
    text: str | None = None,
    threshold: float | None = None,
    params: Mapping[str, Any] | None = None,
    name: str = "similarity",
) -> EvaluatorSpec:
    """The similarity of the output to the row's field ``expected`` or to the fixed ``text``: give one.

    The score is the cosine of their embeddings, from −1 to 1; with ``threshold`` 1 if it is at least that,
    else 0. ``model`` is ``"<connection>:<model>"`` and makes embeddings; one call embeds both texts.
    """
    _require_one("similarity", expected, text)
    if isinstance(text, str) and not text.strip():
        raise SubmissionError(FIELD, text, "similarity: the text to compare with is empty", "Give some text.")
    return build(
        Similarity,
        name=name,
        model=model,
        expected=expected,
        text=text,
        threshold=threshold,
        params=dict(params or {}),
    )


def agent(
    name: str,
    model: str,
    template: str,
    criteria: Sequence[Criterion],
    batching: bool | None = None,
    params: Mapping[str, Any] | None = None,
) -> EvaluatorSpec:
    """An LLM that scores an output by each of ``criteria``; a record has ``scores["<name>.<criterion>"]``.

    ``template`` sees the row's fields, ``output``, ``criteria`` (those of this call, each with ``id``,
    ``description``, ``minimum`` and ``maximum``) and, if there is only one, ``criterion``. Fairlane appends
    the criteria and the form of the answer. It makes one call per criterion; with ``batching`` one for all,
    then one for each that the answer lacks. ``None`` takes the default of the client's environment, or off.
    Nothing but ``params`` and the form of the answer is sent beside the prompt.
    """
    several = isinstance(criteria, Iterable) and not isinstance(criteria, Criterion)
    listed = list(criteria) if several else [criteria]
    if not several or not all(isinstance(each, Criterion) for each in listed):
        remedy = 'Give a list like [criterion("clarity", "Is it easy to follow?")].'
        raise SubmissionError(FIELD, criteria, f"agent {name!r}: criteria is no list of criteria", remedy)
    if not listed:
        raise SubmissionError(FIELD, criteria, f"agent {name!r} has no criteria", "Give at least one.")
    return build(
        Agent,
        name=name,
        model=model,
        template=template,
        criteria=tuple(listed),
        batching=batching,
        params=dict(params or {}),
    )


def criterion(id: str, description: str, minimum: float = 1, maximum: float = 5) -> Criterion:
    """A criterion of an `agent`, which scores it with any number from ``minimum`` to ``maximum``."""
    return build(Criterion, id=id, description=description, minimum=minimum, maximum=maximum)


def _require_one(kind: str, expected: str | None, text: str | None) -> None:
    if (expected is None) == (text is None):
        given = {"expected": expected, "text": text}
        remedy = "Name a row field as expected, or give a fixed text."
        raise SubmissionError(FIELD, given, f"{kind} takes one of expected and text", remedy)


def _of_rubric(
    rubric: str, template: str | None, choices: Mapping[str, float] | None, level: Level
) -> tuple[str, Mapping[str, float]]:
    """The template and the choices of a rubric."""
    if template is not None or choices is not None:
        remedy = "Give the rubric alone, or a template and choices of your own."
        raise SubmissionError(FIELD, rubric, "llm_judge: a rubric brings its template and choices", remedy)
    if not isinstance(rubric, str) or not rubric.strip():
        raise SubmissionError(FIELD, rubric, "llm_judge: the rubric is empty", "Say what an output meets.")
    if level != "item":
        remedy = "Write a template over session."
        raise SubmissionError(FIELD, level, "llm_judge: a rubric is about one output", remedy)
    return rubric_template(rubric), {MET: 1.0, UNMET: 0.0}


def _take_choices(choices: Mapping[Any, float]) -> dict[str, float]:
    """The choices by their texts; numbers and truth values as in JSON."""
    if not isinstance(choices, Mapping) or not choices:
        remedy = 'Map answers to scores, like {"yes": 1, "no": 0}.'
        raise SubmissionError(FIELD, choices, "llm_judge: choices is no dict of answers", remedy)
    seen: set[str] = set()
    taken: dict[str, float] = {}
    for given, value in choices.items():
        answer = as_text(given) if isinstance(given, str | int | float) else ""
        if not any(map(str.isalnum, answer)):
            raise SubmissionError(
                FIELD, given, "llm_judge: a choice has no letter or digit", "Name it by a word."
            )
        if answer.casefold() in seen:
            problem = "llm_judge: two choices differ only in case, which answers need not match"
            raise SubmissionError(FIELD, given, problem, "Rename one of them.")
        seen.add(answer.casefold())
        if not isinstance(value, int | float) or not abs(value) <= MOST_FLOAT:
            problem = "llm_judge: a score is a finite number"
            raise SubmissionError(FIELD, {answer: value}, problem, "Give a number, like 1 or 0.5.")
        taken[answer] = float(value)
    return taken


def check_names(evaluators: Iterable[EvaluatorSpec]) -> None:
    """Raises `SubmissionError` if two evaluators share a name, and so a column of scores.

    An agent's criteria count as ``<agent>.<criterion>``.
    """
    seen: set[str] = set()
    for evaluator in evaluators:
        names = [evaluator.name]
        if isinstance(evaluator, Agent):
            names += [f"{evaluator.name}.{each.id}" for each in evaluator.criteria]
        for name in names:
            if name in seen:
                what = "evaluators" if name == evaluator.name else "scores"
                problem = f"two {what} have this name"
                raise SubmissionError(FIELD, name, problem, 'Give one of them another: name="…".')
            seen.add(name)


_PATTERNS = {
    "function": "names no function of a module",
    "lane": "must be 1 to 100 letters, digits, '.', '_', ':' or '-'",
}
_REMEDIES = {
    "name": 'Give another, like name="judge-2".',
    "id": 'Give another, like criterion("tone", "Is it polite?").',
    "function": FUNCTION_REMEDY,
    "lane": 'Give another, like lane="crm-api".',
    "tolerance": "Give a number, 0 or more.",
    "threshold": "Give a number from -1 to 1, or leave it out.",
    "choices": 'Map answers to scores, like {"yes": 1, "no": 0}.',
    "params": 'Give parameters by name, like {"max_tokens": 64}.',
    "minimum": "Give two finite numbers, the lower one as minimum.",
    "maximum": "Give two finite numbers, the lower one as minimum.",
}


def build(kind: type[Spec], **fields: Any) -> Spec:
    """A spec of that kind. Raises `SubmissionError` for a field that has no such value."""
    try:
        return kind(**fields)
    except ValidationError as error:
        where, value, problem = first_flaw(error)
        if error.errors(include_url=False)[0]["type"] == "string_pattern_mismatch":
            problem = _PATTERNS.get(where, "must be 1 to 64 letters, digits, '.', '_' or '-'")
        value = value if where else fields.get("name", fields.get("id"))
        message = f"{where}: {problem}" if where else problem
        remedy = _REMEDIES.get(where.partition(".")[0], "Correct it.")
        raise SubmissionError(FIELD, value, message, remedy) from error

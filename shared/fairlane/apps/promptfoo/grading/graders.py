"""Graders of one output each: rubrics, facts, closed questions, similarity and the measures of retrieval."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairlane.apps.promptfoo.grading import words
from fairlane.apps.promptfoo.grading.judges import RUBRIC_WORDS
from fairlane.apps.promptfoo.grading.questions import Chat, EmbeddingPair, Grader, chat_from, first_object
from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.subjects import CheckError, Result, Subject, met, points_of, transformed
from fairlane.core.figures import figure
from fairlane.evaluators.judge import parse_choice
from fairlane.evaluators.rubrics import MET, UNMET, enclosed

_LETTER = re.compile(r"\(?\b([A-Ea-e])\b\)?")
_FACTS = {
    "A": ("subset", 1.0),
    "B": ("superset", 1.0),
    "C": ("agree", 1.0),
    "D": ("disagree", 0.0),
    "E": ("differButFactual", 1.0),
}
_QUESTIONS, _MOST_POINTS, _STEPPED = 3, 10, 0.7
_TINY = 1e-12  # rounding error of sums of fractions

Check = Mapping[str, Any]


def rubric(check: Check, subject: Subject, _: Programs) -> Grader:
    """``llm-rubric``: pass or fail in one word, or what the configuration's own prompt asks for."""
    own = check.get("rubricPrompt")
    output = subject.text if own else enclosed(RUBRIC_WORDS, subject.text)
    names = {**subject.variables, "output": output, "rubric": check["value"]}
    answer = (yield [_chat(check, own or RUBRIC_WORDS, names)])[0]
    if not own:
        score = parse_choice(answer, {MET: 1.0, UNMET: 0.0})
        if score.value is None:
            raise CheckError(score.error or "the judge answered neither pass nor fail")
        return met(bool(score.value), "not met")
    found = first_object(answer)
    if found is None:
        raise CheckError(f"the judge answered no JSON: {answer[:100]!r}")
    passed = found.get("pass") not in (False, "false", 0)
    points = points_of(found.get("score"))
    score_ = float(passed) if points is None else points
    enough = passed and (check.get("threshold") is None or score_ >= check["threshold"])
    return Result(enough, score_, str(found.get("reason") or "not met"))


def factuality(check: Check, subject: Subject, _: Programs) -> Grader:
    """``factuality``: how an output's facts relate to the expected ones."""
    names = {
        **subject.variables,
        "input": subject.prompt,
        "ideal": check["value"],
        "completion": subject.text,
        "rubric": check["value"],
    }
    answer = (yield [_chat(check, check.get("rubricPrompt") or words.FACTUALITY, names)])[0]
    found = first_object(answer) or {}
    letter = str(found.get("category") or "").strip().upper()
    if not letter and (spoken := _LETTER.search(answer)):
        letter = spoken[1].upper()
    if letter not in _FACTS:
        return Result(False, 0.0, f"the judge named no category: {answer[:100]!r}")
    name, usual = _FACTS[letter]
    points = float((check.get("factuality") or {}).get(name, usual))
    return Result(points > 0, points, str(found.get("reason") or f"category {letter}"))


def closed_qa(check: Check, subject: Subject, _: Programs) -> Grader:
    """``model-graded-closedqa``: whether the answer's last letter is Y."""
    names = {
        **subject.variables,
        "input": subject.prompt,
        "criteria": check["value"],
        "completion": subject.text,
    }
    answer = (yield [_chat(check, check.get("rubricPrompt") or words.CLOSED_QA, names)])[0]
    return met(answer.rstrip().endswith("Y"), f"the judge ended with {answer.rstrip()[-40:]!r}")


def similar(check: Check, subject: Subject, _: Programs) -> Grader:
    """``similar``: whether the output is like the value, or like one of several."""
    values = check["value"] if isinstance(check["value"], list) else [check["value"]]
    cosines = yield [_embedding_pair(check, str(each), subject.text) for each in values]
    least = check.get("threshold")
    least = 0.75 if least is None else least
    return Result(
        max(cosines) >= least - _TINY,
        max(cosines),
        f"likeness {figure(max(cosines))} is below {figure(least)}",
    )


def answer_relevance(check: Check, subject: Subject, _: Programs) -> Grader:
    """``answer-relevance``: the question's mean cosine to three questions that a model derives from the
    output.
    """
    query = subject.variables.get("query")
    question = query if isinstance(query, str) else subject.prompt
    ask = _chat(check, check.get("rubricPrompt") or words.QUESTION, {"answer": subject.text})
    # each is a chat of its own: a cache would answer the same question thrice
    found = yield [ask] * _QUESTIONS
    cosines = yield [_embedding_pair(check, question, each) for each in found]
    return _at_least(sum(cosines) / len(cosines), check, "relevance")


def context_recall(check: Check, subject: Subject, programs: Programs) -> Grader:
    """``context-recall``: the share of what is expected that follows from the context."""
    context = _text(_context(check, subject, programs, subject.prompt))
    names = {**subject.variables, "context": context, "groundTruth": check["value"]}
    answer = (yield [_chat(check, check.get("rubricPrompt") or words.RECALL, names)])[0]
    lines = _lines(answer)
    score = sum("[Attributed]" in line for line in lines) / len(lines) if lines else 0.0
    return _at_least(score, check, "recall")


def context_relevance(check: Check, subject: Subject, programs: Programs) -> Grader:
    """``context-relevance``: the share of the context that the question needs."""
    context = _context(check, subject, programs)
    names = {"context": _text(context), "query": _query(subject)}
    answer = (yield [_chat(check, check.get("rubricPrompt") or words.RELEVANCE, names)])[0]
    units = [each for each in context if each.strip()] if isinstance(context, list) else _lines(context)
    needed = 0 if "Insufficient Information" in answer else len(_lines(answer))
    return _at_least(needed / len(units) if units else 0.0, check, "relevance")


def context_faithfulness(check: Check, subject: Subject, programs: Programs) -> Grader:
    """``context-faithfulness``: the share of the output's statements that the context supports."""
    context, own = _text(_context(check, subject, programs)), check.get("rubricPrompt")
    first, second = own if isinstance(own, list) and len(own) == 2 else (words.STATEMENTS, words.SUPPORTED)
    names = {**subject.variables, "question": _query(subject), "answer": subject.text}
    statements = _lines((yield [_chat(check, str(first), names)])[0])
    if not statements:
        raise CheckError("the judge found no statements")
    names = {**subject.variables, "context": context, "statements": statements}
    verdicts = (yield [_chat(check, str(second), names)])[0].lower()
    said, marker, final = verdicts.partition("final verdict for each statement in order:")
    if marker:
        unsupported = sum(bool(each.strip()) and "yes" not in each for each in final.split("."))
    else:
        unsupported = said.count("verdict: no")
    return _at_least(1 - unsupported / len(statements), check, "faithfulness")


def g_eval(check: Check, subject: Subject, _: Programs) -> Grader:
    """``g-eval``: criteria become steps, and these a score; the mean over several criteria."""
    own = check.get("rubricPrompt")
    own = own if isinstance(own, Mapping) else {}
    listed = check["value"] if isinstance(check["value"], list) else [check["value"]]
    answers = yield [_chat(check, own.get("steps") or words.STEPS, {"criteria": each}) for each in listed]
    questions: list[Chat] = []
    for criteria, answer in zip(listed, answers, strict=True):
        steps = (first_object(answer) or {}).get("steps")
        if not isinstance(steps, list) or not steps:
            return Result(False, 0.0, f"the judge proposed no steps: {answer[:100]!r}")
        names = {
            "criteria": criteria,
            "steps": "\n- ".join(map(str, steps)),
            "maxScore": str(_MOST_POINTS),
            "input": subject.prompt,
            "output": subject.text,
        }
        questions.append(_chat(check, own.get("evaluate") or words.SCORED, names))
    found = [first_object(each) or {} for each in (yield questions)]
    points = [points for each in found if (points := points_of(each.get("score"))) is not None]
    if len(points) < len(found):
        return Result(False, 0.0, "the judge gave no score")
    score = sum(each / _MOST_POINTS / len(points) for each in points)
    least = _STEPPED if check.get("threshold") is None else check["threshold"]
    reasons = "; ".join(str(each.get("reason") or "") for each in found)
    return Result(score >= least, score, f"{figure(score)} is below {figure(least)}: {reasons}")


def select_best(check: Check, subjects: Sequence[Subject]) -> Grader:
    """``select-best``: the index of the best output, as the result's score."""
    names = {**subjects[0].variables, "criteria": check["value"], "outputs": [each.text for each in subjects]}
    answer = (yield [_chat(check, check.get("rubricPrompt") or words.BEST, names)])[0]
    digit = re.search(r"\d+", answer)
    if digit is None or int(digit[0]) >= len(subjects):
        raise CheckError(f"the judge chose none of the outputs: {answer[:100]!r}")
    return Result(True, float(digit[0]))


GRADERS: Mapping[str, Callable[[Check, Subject, Programs], Grader]] = {
    "llm-rubric": rubric,
    "factuality": factuality,
    "model-graded-factuality": factuality,
    "model-graded-closedqa": closed_qa,
    "similar": similar,
    "similar:cosine": similar,
    "answer-relevance": answer_relevance,
    "context-recall": context_recall,
    "context-relevance": context_relevance,
    "context-faithfulness": context_faithfulness,
    "g-eval": g_eval,
}
"""The grader of each assertion that asks models about one output."""

EMBEDS = frozenset(("similar", "similar:cosine", "answer-relevance"))
"""Assertions that need a model of embeddings."""


def _chat(check: Check, template: str, names: Mapping[str, Any]) -> Chat:
    return chat_from(check["judge"], template, names)


def _embedding_pair(check: Check, one: str, other: str) -> EmbeddingPair:
    return EmbeddingPair(check["embedder"]["model"], one, other, check["embedder"].get("params") or {})


def _at_least(score: float, check: Check, name: str) -> Result:
    least = check.get("threshold") or 0.0
    return Result(score >= least - _TINY, score, f"{name} {figure(score)} is below {figure(least)}")


def _query(subject: Subject) -> str:
    query = subject.variables.get("query")
    if not isinstance(query, str):
        raise CheckError("the test has no variable 'query' with the question")
    return query


def _context(
    check: Check, subject: Subject, programs: Programs, otherwise: str | None = None
) -> str | list[str]:
    found: Any = subject.variables.get("context") or otherwise
    if code := check.get("contextTransform"):
        try:
            found = transformed(code, subject.answered, subject.context(), programs)
        except ProgramError as error:
            raise CheckError(f"contextTransform: {error}") from None
    if isinstance(found, str) and found:
        return found
    if isinstance(found, list) and found and all(isinstance(each, str) and each for each in found):
        return found
    raise CheckError("there is no context: give the test a variable 'context', or a contextTransform")


def _text(context: str | list[str]) -> str:
    return context if isinstance(context, str) else "\n\n".join(context)


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]

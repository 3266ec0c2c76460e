"""The known assertions, and how this process checks one: it gives a result, or a grader that asks models."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fairlane.apps.promptfoo.checking import forms, texts
from fairlane.apps.promptfoo.checking.coded import judged_by_program
from fairlane.apps.promptfoo.grading.graders import GRADERS
from fairlane.apps.promptfoo.grading.questions import Grader
from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.reading.places import names
from fairlane.apps.promptfoo.subjects import CheckError, Result, Subject, met, transformed
from fairlane.core.figures import dollars, figure
from fairlane.evaluators.assertions import NOT, TYPES, AssertionsError, check

PROGRAMS = frozenset(("javascript", "python"))
SETS = "assert-set"
COMPARES = frozenset(("select-best", "max-score"))
"""Assertions that compare the outputs of one test."""

Check = Mapping[str, Any]

LOCAL: Mapping[str, Callable[[Check, Subject], Result]] = {
    "levenshtein": lambda each, subject: texts.levenshtein(
        subject.text, each["value"], each.get("threshold")
    ),
    "rouge-n": lambda each, subject: texts.rouge(subject.text, each["value"], each.get("threshold")),
    "bleu": lambda each, subject: texts.bleu(subject.text, each["value"], each.get("threshold")),
    "min-length": lambda each, subject: texts.length(subject.text, _bound(each), least=True),
    "max-length": lambda each, subject: texts.length(subject.text, _bound(each), least=False),
    "empty": lambda _, subject: met(not subject.text.strip(), "it is not empty"),
    "word-count": lambda each, subject: texts.word_count(subject.text, each["value"]),
    "is-refusal": lambda _, subject: forms.is_refusal(subject),
    "is-xml": lambda each, subject: forms.is_xml(subject.text, each.get("value"), within=False),
    "contains-xml": lambda each, subject: forms.is_xml(subject.text, each.get("value"), within=True),
    "is-html": lambda _, subject: forms.is_html(subject.text, within=False),
    "contains-html": lambda _, subject: forms.is_html(subject.text, within=True),
    "is-valid-openai-tools-call": lambda _, subject: forms.is_tool_call(subject),
    "is-valid-function-call": lambda _, subject: forms.is_function_call(subject),
    "is-valid-openai-function-call": lambda _, subject: forms.is_function_call(subject),
    "cost": lambda each, subject: _cost(each, subject),
    "latency": lambda each, subject: _latency(each, subject),
    "finish-reason": lambda each, subject: _finish_reason(each, subject),
}
"""Checks that need no program and no model, and that workers do not know."""

VALUELESS = names(
    "is-refusal is-xml contains-xml is-html contains-html empty cost latency is-valid-openai-tools-call",
    "is-valid-function-call is-valid-openai-function-call is-json contains-json answer-relevance",
    "context-relevance context-faithfulness max-score min-length max-length",
)
"""Assertions that may have no value."""


RUBRIC, SIMILAR = "llm-rubric", "similar"
GRADED = frozenset((*GRADERS, "select-best"))
"""Assertions that ask models."""

_KNOWN = frozenset((*TYPES, *LOCAL, *PROGRAMS, *GRADED, *COMPARES))
_REMEDIES = {
    "ruby": "programs are run if they are JavaScript or Python",
    "webhook": "nothing but models is called: write the check in JavaScript or Python",
    "moderation": "no model of moderation is called: use llm-rubric",
    "classifier": "no classifier is called: use llm-rubric",
    "search-rubric": "no search is made: use llm-rubric",
    "agent-rubric": "no agent is run: use llm-rubric",
    "conversation-relevance": "use llm-rubric, over the conversation in its text",
    "pi": "use llm-rubric",
    "perplexity": "log probabilities are not kept",
    "perplexity-score": "log probabilities are not kept",
    "guardrails": "answers' guardrails are not kept",
    "meteor": "use rouge-n or bleu",
    "gleu": "use bleu",
    "is-sql": "write it in Python, with the parser of your dialect",
    "contains-sql": "write it in Python, with the parser of your dialect",
    "trace": "calls leave no traces here",
    "trajectory": "calls leave no traces here",
    "skill-used": "no agents are run",
    "tool-call-f1": "write it in JavaScript or Python",
    "promptfoo": "nothing is attacked",
}


def refusal_of(kind: str) -> str | None:
    """Why an assertion of this type is refused; ``None`` if it is supported."""
    name = kind.removeprefix(NOT)
    if name in _KNOWN:
        return None
    unsupported = f"the assertion {kind} is not supported"
    first = name.partition(":")[0]
    remedy = _REMEDIES.get(first) or _REMEDIES.get(first.partition("-")[0])
    return f"{unsupported}: {remedy}" if remedy else unsupported


def outcome(each: Check, subject: Subject, programs: Programs) -> Result | Grader:
    """Check one assertion on an output. Raises `CheckError` if it cannot be checked."""
    kind = each["type"]
    name, inverse = kind.removeprefix(NOT), kind.startswith(NOT)
    if code := each.get("transform"):
        try:
            subject = replace(subject, output=transformed(code, subject.output, subject.context(), programs))
        except ProgramError as error:
            raise CheckError(f"its transform failed: {error}") from None
    if name in PROGRAMS:
        return judged_by_program(each, name, subject, programs, inverse=inverse)
    if name in GRADERS:
        grader = GRADERS[name](each, subject, programs)
        return _inverted_later(grader) if inverse else grader
    if name in TYPES:
        try:
            found = check([{"type": kind, "value": each.get("value")}], subject.text)
        except AssertionsError as error:
            raise CheckError(str(error)) from None
        return met(found[0].met, "not met")
    if name == "is-refusal" and not (isinstance(subject.output, str) and subject.output.strip()):
        return Result(not inverse, 0.0, "the output is empty, which is a refusal" if inverse else "")
    result = LOCAL[name](each, subject)
    return _inverted(result) if inverse else result


def _inverted(result: Result) -> Result:
    return Result(not result.passed, 1 - result.score, "the opposite is asked for", result.named)


def _inverted_later(grader: Grader) -> Grader:
    return _inverted((yield from grader))


def _bound(each: Check) -> Any:
    return each["threshold"] if each.get("value") is None else each["value"]


def _cost(each: Check, subject: Subject) -> Result:
    if subject.cost is None:
        raise CheckError(
            f"the model {subject.record.model} has no price: write it under [prices] in fairlane.toml"
        )
    most = each["threshold"]
    return met(subject.cost <= most, f"it cost {dollars(subject.cost)}, at most {dollars(most)} may be")


def _latency(each: Check, subject: Subject) -> Result:
    took, most = subject.record.latency_ms, each["threshold"]
    if subject.record.cached or took is None:
        raise CheckError("the cache answered, so there is no latency")
    return met(took <= most, f"it took {took} ms, at most {figure(most)} may be")


def _finish_reason(each: Check, subject: Subject) -> Result:
    reason = subject.record.finish_reason or ""
    return met(reason.lower() == str(each["value"]).lower(), f"it ended by {reason or 'nothing named'}")

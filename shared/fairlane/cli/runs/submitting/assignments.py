"""``name=value`` on the command line: parameters whose values are JSON, and evaluators with their options."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fairlane.client.submitting.options import SubmitOptions
from fairlane.config.problems import did_you_mean
from fairlane.core.errors import SubmissionError
from fairlane.core.figures import plain_number
from fairlane.evaluators import builders
from fairlane.model.evaluators import EVALUATORS, Agent, EvaluatorSpec, Judge

EVALUATOR, CHOICES, OPTION = "--evaluator", "--judge-choices", "--option"

OWN_OPTIONS: Mapping[str, str] = {
    "prompt": "--prompt",
    "messages": "--messages-file",
    "prompts": "--prompt, once for each",
    "model": "--model",
    "models": "--model, once for each",
    "params": "--param",
    "repetitions": "--repetitions",
    "evaluators": "--evaluator",
    "name": "--name",
    "priority": "--priority or --interactive",
    "timeout": "--timeout",
    "retry": "--max-attempts",
    "max_concurrent": "--max-concurrent",
    "on_refusal": "--on-refusal",
    "check": "--no-check",
}
"""Arguments of `Client.submit` that have options of their own on the command line."""

OPTIONS = frozenset(SubmitOptions.__annotations__) - OWN_OPTIONS.keys()

_KINDS = [each.model_fields["kind"].default for each in EVALUATORS if each not in (Judge, Agent)]
_SCORERS: Mapping[str, Callable[..., EvaluatorSpec]] = {
    kind: getattr(builders, kind) for kind in _KINDS if hasattr(builders, kind)
}

# A value without quotes is a text, unless it begins like JSON, or spells a word of JSON as Python does.
_LIKE_JSON = re.compile(r'[\[{"\d-]')
_MISSPELT = {"True": "true", "False": "false", "None": "null"}

_BETWEEN_WORDS = re.compile(r"[,+]")

# A comma separates two options only where a name and "=" follow: a pattern may have commas of its own.
_NEXT_OPTION = re.compile(r",(?=[a-z_]+=)")


def read_params(option: str, given: Iterable[str]) -> dict[str, Any]:
    r"""``["max_tokens=64", "stop=[\"x\"]"]`` as a dict. Raises `SubmissionError`."""
    params: dict[str, Any] = {}
    for each in given:
        name, separator, text = each.partition("=")
        if not (separator and name.strip()):
            raise SubmissionError(option, each, "is not name=value", f"Write {option} max_tokens=64.")
        if name.strip() in params:
            raise SubmissionError(option, each, f"{name.strip()} is given twice", "Give it once.")
        params[name.strip()] = _value(option, each, text)
    return params


def read_options(given: Iterable[str]) -> dict[str, Any]:
    """``["cache=read_write", "task_rate=20"]`` as arguments of `Client.submit`. Raises `SubmissionError`."""
    options = read_params(OPTION, given)
    for name, value in options.items():
        if name not in OPTIONS:
            raise _no_option(name, f"{name}={value}")
    return options


def _no_option(name: str, given: str) -> SubmissionError:
    own = OWN_OPTIONS.get(name)
    if own is not None:
        return SubmissionError(OPTION, given, f"{name} has an option of its own", f"Write {own}.")
    near = did_you_mean(name, sorted(OPTIONS | OWN_OPTIONS.keys()))
    remedy = near[:1].upper() + near[1:] or f"There are {', '.join(sorted(OPTIONS))}."
    return SubmissionError(OPTION, given, f"there is no option {name!r}", remedy)


def read_evaluator(given: str) -> EvaluatorSpec:
    """``"exact_match:expected=answer,ignore_case=true"`` as an evaluator. Raises `SubmissionError`."""
    kind, _, rest = given.partition(":")
    build = _SCORERS.get(kind.strip())
    if build is None:
        raise _unknown_evaluator(given, kind.strip())
    options = [part.partition("=") for part in _NEXT_OPTION.split(rest)] if rest.strip() else []
    names = inspect.signature(build).parameters
    for name, separator, _ in options:
        if not separator or name not in names:
            remedy = f"{kind} takes {', '.join(names)}."
            raise SubmissionError(EVALUATOR, given, f"{name!r} is no option of {kind}", remedy)
    values = {name: _READERS.get(names[name].annotation, _text)(given, text) for name, _, text in options}
    try:
        inspect.signature(build).bind(**values)
    except TypeError as error:
        raise SubmissionError(EVALUATOR, given, str(error), f"Write {kind}:expected=FIELD.") from None
    return build(**values)


def read_judge(model: str, template: str, choices: str | None, params: Iterable[str]) -> EvaluatorSpec:
    """An LLM judge from its options; ``choices`` is a JSON object. Raises `SubmissionError`."""
    return builders.llm_judge(model, template, _choices(choices), params=read_params("--judge-param", params))


def _choices(text: str | None) -> dict[str, float]:
    if text is None:
        return {"yes": 1, "no": 0}
    remedy = """Write an object like '{"yes": 1, "no": 0}'."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SubmissionError(CHOICES, text, f"is not JSON: {error}", remedy) from None
    if not isinstance(found, dict):
        raise SubmissionError(CHOICES, text, "is no object", remedy)
    return found


def _value(option: str, given: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if text in _MISSPELT:
            remedy = f"JSON writes {_MISSPELT[text]}."
            raise SubmissionError(option, given, f"{text} is not JSON", remedy) from None
        if _LIKE_JSON.match(text):
            remedy = "Put double quotes around a text that begins like JSON."
            raise SubmissionError(option, given, f"the value is not JSON: {error}", remedy) from None
    return text


def _unknown_evaluator(given: str, kind: str) -> SubmissionError:
    if kind == "llm_judge":
        remedy = "Use --judge-model, --judge-template and --judge-choices."
        return SubmissionError(EVALUATOR, given, "a judge has options of its own", remedy)
    near = did_you_mean(kind, _SCORERS)
    remedy = near[0].upper() + near[1:] if near else f"There are {', '.join(_SCORERS)}."
    return SubmissionError(EVALUATOR, given, f"there is no evaluator {kind!r}", remedy)


def _text(_: str, text: str) -> str:
    return text


def _truth(given: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise SubmissionError(EVALUATOR, given, f"{text!r} is neither true nor false", "Write one of them.")
    return text == "true"


def _number(given: str, text: str) -> float:
    try:
        return plain_number(text)
    except ValueError:
        raise SubmissionError(EVALUATOR, given, f"{text!r} is no number", "Write one, like 0.01.") from None


def _words(given: str, text: str) -> list[str]:
    """Names from ``a,b``, ``a+b``, or a JSON list, which names with , or + need. Raises `SubmissionError`."""
    if not text.lstrip().startswith("["):
        return [word.strip() for word in _BETWEEN_WORDS.split(text) if word.strip()]
    words = _value(EVALUATOR, given, text)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise SubmissionError(EVALUATOR, given, f"{text} is no list of texts", """Write ["a", "b"].""")
    return words


_READERS: Mapping[Any, Callable[[str, str], Any]] = {
    bool: _truth,
    **dict.fromkeys((float, float | None, int, int | None), _number),
    Sequence[str]: _words,
}
"""How an option of a builder is read, by the type of its argument; others are texts."""
